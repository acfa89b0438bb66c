#!/usr/bin/env python3
# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Sparse attention by PyTorch on the CPU, as one would write it: selected pages gathered, then scaled_dot_product_attention in bf16.

    torch_cpu.py [--min-time S] WORKLOADS [FILE]    times decode and prefill of a workloads file, and writes FILE (JSON)

The inputs are those of `msa bench` (docs/workloads.md): selections, page tables and lengths; every call takes another table over a
pool of 4.2 GB. A gather copies whole rows of K and V, and the rows of q that share a KV head are one call's queries. Prefill goes by
chunks of tokens, of the size that is fastest here. Exit codes: 0; 1: results are wrong; 2: wrong use; 3: there is no PyTorch.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import inputs  # noqa: E402

HEAD_DIM, PAGE, TOPK = inputs.HEAD_DIM, inputs.PAGE, inputs.TOPK
POOL_BYTES = 4_200_000_000
SEED = 11  # of workloads that name none
CHUNKS = (16, 64, 256)  # tokens of prefill that are gathered together
COLD_BYTES = 2_000_000_000  # distinct bytes of successive calls
LEAST_CALLS = 5
TOLERANCE = 2e-2  # of an element of out against f32 arithmetic on the same cache


def open_torch():
    try:
        import torch
    except ImportError as error:
        print(f"torch_cpu: skipped: PyTorch is not installed ({error})", file=sys.stderr)
        sys.exit(3)
    return torch


class Cache:
    """One pool for all workloads: pages of one KV head each, [pages][128 tokens][K, V]."""

    def __init__(self, torch):
        chunk = torch.randn(256, PAGE * 2 * HEAD_DIM).to(torch.bfloat16)
        pages = POOL_BYTES // (PAGE * 2 * HEAD_DIM * 2)
        self.rows = chunk.repeat(pages // len(chunk), 1)

    def pages(self, heads):
        return len(self.rows) // heads


class Case:
    """A workload: tokens of q, and of each the pages that it attends to."""

    def __init__(self, torch, cache, work):
        self.torch, self.cache, self.work = torch, cache, work
        self.hq, self.hkv = work["hq"], work["hkv"]
        self.decode = work["op"] == "decode"
        self.tokens = work["batch"] if self.decode else work["tokens"]
        context, seed = work["context"], work.get("seed", SEED)
        if self.decode:
            self.positions = torch.full((self.tokens,), context - 1)
            self.blocks = -(-context // PAGE)
        else:
            self.positions = torch.arange(self.tokens) + context
            self.blocks = -(-(context + self.tokens) // PAGE)
        q = torch.randn(self.tokens, self.hkv, self.hq // self.hkv, HEAD_DIM)
        self.q = q.to(torch.bfloat16)
        self.out = torch.empty_like(self.q)
        self.gathered = None  # memory that is kept from call to call
        self.ids = self.selection(seed)
        # The own block comes last: of the others all keys are visible.
        keys = (TOPK - 1) * PAGE + self.positions % PAGE + 1
        self.visible = (torch.arange(TOPK * PAGE) < keys[:, None])[:, None, None]
        self.masked = not bool(self.visible.all())

    def selection(self, seed):
        """[tokens][hkv][16]."""
        work = self.work
        if self.decode:
            ids = inputs.decode_rows(self.tokens, 1, work["context"], self.hkv, seed)
        else:
            ids = inputs.selection_rows(self.tokens, work["context"], self.hkv, round(1000 * work.get("keep", 0.9)), seed)
        return self.torch.tensor(ids).view(self.tokens, self.hkv, TOPK)

    def rows(self, call):
        """Rows of the cache that a call's tokens attend to, [tokens][hkv][16]."""
        torch = self.torch
        requests = self.tokens if self.decode else 1
        pages = inputs.table_rows(requests, self.blocks, self.cache.pages(self.hkv), SEED + call)
        entries = requests * self.blocks
        table = torch.tensor((pages * -(-entries // len(pages)))[:entries]).view(requests, self.blocks)
        request = torch.arange(self.tokens) if self.decode else torch.zeros(self.tokens, dtype=torch.int64)
        return table[request[:, None, None], self.ids] * self.hkv + torch.arange(self.hkv)[:, None]

    def sets(self):
        """Sets of rows that together are cold."""
        distinct = self.tokens * self.hkv * TOPK if self.decode else self.hkv * self.blocks
        return max(2, min(2048, -(-COLD_BYTES // (distinct * PAGE * 2 * HEAD_DIM * 2))))

    def attend(self, rows, first, end):
        """Tokens [first, end) to `out`."""
        torch = self.torch
        wanted = rows[first:end].reshape(-1)
        if self.gathered is None or len(self.gathered) < len(wanted):
            self.gathered = self.cache.rows.new_empty(len(wanted), PAGE * 2 * HEAD_DIM)
        pages = torch.index_select(self.cache.rows, 0, wanted, out=self.gathered[:len(wanted)])
        kv = pages.view(end - first, self.hkv, TOPK * PAGE, 2 * HEAD_DIM)
        k, v = kv.split(HEAD_DIM, dim=-1)
        mask = self.visible[first:end] if self.masked else None
        self.out[first:end] = torch.nn.functional.scaled_dot_product_attention(self.q[first:end], k, v, attn_mask=mask)

    def call(self, rows, chunk):
        for first in range(0, self.tokens, chunk):
            self.attend(rows, first, min(first + chunk, self.tokens))

    def worst_error(self, rows):
        """Of the first and the last token, against f32 arithmetic."""
        torch, errors = self.torch, []
        for token in (0, self.tokens - 1):
            kv = self.cache.rows[rows[token].reshape(-1)].view(self.hkv, TOPK * PAGE, 2 * HEAD_DIM).float()
            k, v = kv.split(HEAD_DIM, dim=-1)
            logits = self.q[token].float() @ k.transpose(1, 2) * HEAD_DIM ** -0.5
            logits.masked_fill_(~self.visible[token, 0], -torch.inf)
            errors.append((torch.softmax(logits, -1) @ v - self.out[token].float()).abs().max())
        return torch.stack(errors).max().item()


def times_of(case, sets, chunk, min_time):
    """Seconds of successive calls."""
    case.call(sets[-1], chunk)
    times, ends = [], time.perf_counter() + min_time
    while len(times) < LEAST_CALLS or time.perf_counter() < ends:
        begin = time.perf_counter()
        case.call(sets[len(times) % len(sets)], chunk)
        times.append(time.perf_counter() - begin)
    return times


def measure(torch, cache, work, min_time):
    case = Case(torch, cache, work)
    sets = [case.rows(call) for call in range(case.sets())]
    chunks = [case.tokens] if case.decode else CHUNKS
    of_chunks = {chunk: times_of(case, sets, chunk, min_time) for chunk in chunks}
    chunk = min(chunks, key=lambda chunk: statistics.median(of_chunks[chunk]))
    times = of_chunks[chunk]
    case.call(sets[0], chunk)
    error = case.worst_error(sets[0])
    median = statistics.median(times)
    right = error <= TOLERANCE
    shard = f"{case.hq}/{case.hkv}"
    print(f"{work['op']:8} {shard:5} tokens {case.tokens:5} context {work['context']}: {median * 1e6:10.1f} us "
          f"({min(times) * 1e6:.1f} to {max(times) * 1e6:.1f}), largest error {error:.4f}{'' if right else '  WRONG'}", flush=True)
    return {"workload": work, "us": median * 1e6, "fastest_us": min(times) * 1e6, "slowest_us": max(times) * 1e6,
            "chunk": chunk, "max_error": error, "right": right}


def problem_of(work):
    if work.get("op") not in ("decode", "prefill") or work.get("kv") != "bf16":
        return "op decode or prefill and kv bf16"
    if work["op"] == "decode" and (work.get("m") != 1 or work["context"] % PAGE or work["context"] < TOPK * PAGE):
        return f"m 1 and a context of whole pages, {TOPK} or more"
    if work["op"] == "prefill" and (work.get("batch", 1) != 1 or "selection" in work or work["context"] < TOPK * PAGE):
        return f"one request, generated selections and a context of {TOPK} pages or more"
    return None


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--min-time", default=0.5, type=float, help="seconds a case (default: %(default)s)")
    parser.add_argument("workloads", type=pathlib.Path)
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    options = parser.parse_args(arguments)
    works = [json.loads(line) for line in options.workloads.read_text().splitlines() if line]
    for work in works:
        problem = problem_of(work)
        if problem:
            parser.error(f"{work}: allowed: {problem}")
    torch = open_torch()
    torch.manual_seed(1)
    cache = Cache(torch)
    with torch.inference_mode():
        cases = [measure(torch, cache, work, options.min_time) for work in works]
    report = {"peer": "torch", "version": torch.__version__, "threads": torch.get_num_threads(), "cases": cases}
    if options.file:
        options.file.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(case["right"] for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
