# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Cells of bench/targets.json, and what names them in results files."""
import itertools

KEY = ("kv", "shard", "m", "batch", "layout", "lse", "selection", "variant")
USUAL = {"layout": "LBHNC", "lse": False, "selection": "grid", "variant": "usual"}


def key_of(case, **changes):
    merged = {**USUAL, **case, **changes}
    return tuple(merged[name] for name in KEY)


def text_of(key):
    case = dict(zip(KEY, key))
    extra = [str(case[name]) for name in ("layout", "selection", "variant") if case[name] != USUAL[name]]
    extra += ["LSE"] if case["lse"] else []
    return " ".join([case["kv"], case["shard"], f"m {case['m']}", f"B {case['batch']}", *extra])


def expand(entry):
    """Pairs (key, cell) of an entry: a list stands for each of its values, `us` may name a figure for each batch."""
    figures = entry.get("us")
    batches = [int(batch) for batch in figures] if isinstance(figures, dict) else entry["batch"]
    values = {**USUAL, **entry, "batch": batches}
    lists = [values[name] if isinstance(values[name], list) else [values[name]] for name in KEY]
    for key in itertools.product(*lists):
        cell = dict(entry)
        if isinstance(figures, dict):
            cell["us"] = figures[str(key[KEY.index("batch")])]
        yield key, cell
