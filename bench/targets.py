# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Cells of bench/targets.json, and what names them in results files."""
import itertools


class Kind:
    """What names the cells of a part: `key`, in order, and the values that a cell need not say."""

    def __init__(self, key, usual, text):
        self.key = key
        self.usual = usual
        self.text = text

    def key_of(self, case, **changes):
        merged = {**self.usual, **case, **changes}
        return tuple(merged[name] for name in self.key)

    def text_of(self, key):
        return self.text(dict(zip(self.key, key)), self.usual)

    def expand(self, entry):
        """Pairs (key, cell) of an entry: a list stands for each of its values, `us` may name a figure for each batch."""
        figures = entry.get("us")
        values = {**self.usual, **entry}
        if isinstance(figures, dict):
            values["batch"] = [int(batch) for batch in figures]
        lists = [values[name] if isinstance(values[name], list) else [values[name]] for name in self.key]
        for key in itertools.product(*lists):
            cell = dict(entry)
            if isinstance(figures, dict):
                cell["us"] = figures[str(key[self.key.index("batch")])]
            yield key, cell


def decode_text(case, usual):
    extra = [str(case[name]) for name in ("layout", "selection", "variant") if case[name] != usual[name]]
    extra += ["LSE"] if case["lse"] else []
    return " ".join([case["kv"], case["shard"], f"m {case['m']}", f"B {case['batch']}", *extra])


def prefill_text(case, usual):
    """As prefill_bench prints it."""
    requests = [f"{case['requests']} x"] if case["requests"] > 1 else []
    extra = [str(case[name]) for name in ("layout", "variant") if case[name] != usual[name]]
    return " ".join([case["kv"], case["shard"], *requests, str(case["queries"]), "@", str(case["context"]), case["selection"], *extra])


def index_text(case, usual):
    """As index_bench prints it."""
    heads = f"{case['heads']} head{'s' if case['heads'] > 1 else ''}"
    requests = [f"{case['batch']} x"] if case["batch"] > 1 else []
    rows = [f"m {case['m']} B {case['batch']}"] if case["m"] else [*requests, str(case["tokens"])]
    extra = [case[name] for name in ("lengths", "variant") if case[name] != usual[name]]
    return " ".join([case["products"], heads, *rows, "@", str(case["context"]), *extra])


def layer_text(case, usual):
    """As layer_bench prints it."""
    text = f"{case['op']} {case['shard']} {case['kv']}"
    if case["context"]:
        return f"{text} B {case['tokens']} @ {case['context']}"
    return f"{text} {case['tokens']} {'tokens' if case['op'] == 'write' else 'pages'}"


DECODE = Kind(("kv", "shard", "m", "batch", "layout", "lse", "selection", "variant"),
              {"layout": "LBHNC", "lse": False, "selection": "grid", "variant": "usual"}, decode_text)
PREFILL = Kind(("kv", "shard", "requests", "queries", "context", "selection", "layout", "variant"),
               {"requests": 1, "layout": "LBHNC", "variant": "usual"}, prefill_text)
INDEX = Kind(("products", "heads", "batch", "m", "tokens", "context", "lengths", "variant"),
             {"heads": 4, "batch": 1, "m": 0, "tokens": 0, "lengths": "alike", "variant": "usual"}, index_text)
LAYER = Kind(("op", "shard", "kv", "tokens", "context"), {"context": 0}, layer_text)

KEY = DECODE.key
key_of = DECODE.key_of
text_of = DECODE.text_of
expand = DECODE.expand
