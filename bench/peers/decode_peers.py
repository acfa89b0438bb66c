#!/usr/bin/env python3
# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Decode attend of other libraries on one GPU: the inputs of decode_bench, timed in graphs like it.

    decode_peers.py fetch [--ops DIR]                  gets vLLM's Triton kernels into DIR (needs a network)
    decode_peers.py [--ops DIR] [--peer NAME …] [FILE] times the peers' cells of bench/targets.json, and writes FILE (JSON)

Every call of a graph has a page table of its own over a pool of 12 GB, and before every replay other pages pass through L2.
A peer's own dependent launches stay as it captures them. Exit codes: 0; 1: a peer's results are wrong; 2: wrong use; 3: there
is no PyTorch, no GPU or no peer to run.
"""
import argparse
import json
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import flashinfer_msa  # noqa: E402
import inputs  # noqa: E402
import vllm_triton  # noqa: E402
from targets import KEY, expand, key_of, text_of  # noqa: E402

NAMES = (vllm_triton.NAME, flashinfer_msa.NAME)
REPLAYS, WARM_UP = 11, 2
EVICTED_BYTES = 1 << 30
TOLERANCE = 2e-2  # of an element of out against f32 arithmetic on the same cache


class Unavailable(Exception):
    """A peer, or what all of them need, is not there."""


def cells_of(targets, peer):
    """The peer's cells, those with the same pool contents one after the other."""
    keys = [key for entry in targets["decode"]["peers"]["cells"] if entry["peer"] == peer for key, _ in expand(entry)]
    return sorted(keys, key=lambda key: (key[KEY.index("kv")], key))


def open_torch():
    try:
        import torch
    except ImportError as error:
        raise Unavailable(f"PyTorch is not installed ({error})") from error
    if not torch.cuda.is_available():
        raise Unavailable("PyTorch finds no GPU")
    return torch


def open_peer(name, torch, ops):
    if name == vllm_triton.NAME:
        problem = vllm_triton.missing(ops)
        if problem:
            raise Unavailable(f"{problem}: run `{pathlib.Path(__file__).name} fetch --ops DIR` on a machine with a network "
                              "and bring DIR along")
        try:
            return vllm_triton.Peer(torch, ops)
        except ImportError as error:
            raise Unavailable(f"{name} cannot be loaded ({error})") from error
    try:
        return flashinfer_msa.Peer(torch)
    except ImportError as error:
        raise Unavailable(f"{name} is not installed ({error})") from error


class Pool:
    """12 GB of device memory that every cell's pages come from, filled anew for each element type."""

    def __init__(self, torch, device, size=inputs.POOL_BYTES, chunk=64 << 20):
        self.torch, self.chunk = torch, chunk
        self.bytes = torch.empty(size, dtype=torch.uint8, device=device)
        self.kv = None

    def view(self, shard, kv):
        """[pages, hkv, 128, 256]."""
        torch = self.torch
        if kv != self.kv:
            values = inputs.random_values(torch, kv, self.chunk // 2, 1, self.bytes.device).view(torch.uint8)
            self.bytes.view(-1, self.chunk)[:] = values
            self.kv = kv
        dtype = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}[kv]
        _, hkv = inputs.heads_of(shard)
        row = (hkv, inputs.PAGE, 2 * inputs.HEAD_DIM)
        pages = len(self.bytes) // (hkv * inputs.PAGE * 2 * inputs.HEAD_DIM * inputs.ELEMENT_BYTES[kv])
        used = pages * hkv * inputs.PAGE * 2 * inputs.HEAD_DIM * inputs.ELEMENT_BYTES[kv]
        return self.bytes[:used].view(dtype).view(pages, *row)

    def evict(self, replay):
        """Fills L2 with a gigabyte of the pool, of which a call needs hardly a page."""
        regions = len(self.bytes) // EVICTED_BYTES
        at = replay % regions * EVICTED_BYTES
        self.bytes[at:at + EVICTED_BYTES].view(self.torch.int64).sum()


class Inputs:
    """Tensors of one cell; tables are kept, as making them takes longest."""

    def __init__(self, torch, device, real):
        self.torch, self.device, self.real = torch, device, real
        self.tables = {}

    def tensor(self, numbers, *shape):
        return self.torch.tensor(numbers, dtype=self.torch.int32, device=self.device).view(*shape)

    def tables_of(self, batch, columns, pages):
        key = batch, columns, pages
        if key not in self.tables:
            self.tables[key] = [self.tensor(inputs.table_of_call(batch, columns, pages, call), batch, columns)
                                for call in range(inputs.CALLS)]
        return self.tables[key]

    def of(self, case, pool):
        torch, m, batch = self.torch, case["m"], case["batch"]
        hq, hkv = inputs.heads_of(case["shard"])
        ids, lengths, columns = inputs.rows_of(case["shard"], m, batch, case["selection"], self.real)
        kv = pool.view(case["shard"], case["kv"])
        shape = (batch * m, hq, inputs.HEAD_DIM)
        values = inputs.random_values(torch, "bf16", batch * m * hq * inputs.HEAD_DIM, 3, self.device)
        return {"kv": kv, "q": values.view(torch.bfloat16).view(shape),
                "out": torch.full(shape, float("nan"), dtype=torch.bfloat16, device=self.device),
                "lengths": self.tensor(lengths, batch),
                "ids": self.tensor(ids, batch * m, hkv, inputs.TOPK),
                "tables": self.tables_of(batch, columns, kv.shape[0])}


def calls_of(peer, data, m):
    return [peer.call(data["q"], data["kv"], data["ids"], table, data["lengths"], m, data["out"])
            for table in data["tables"]]


def time_graph(torch, calls, evict):
    """Microseconds a call, one for each replay of a graph of all calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # compiles what is compiled at the first call
        for call in calls[:2]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for replay in range(WARM_UP + REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        evict(replay)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return times[WARM_UP:]


def expected_rows(torch, data, m, call, row, head):
    """The heads of one KV head in one row of out, in f32 arithmetic on the same cache."""
    q, kv, table = data["q"], data["kv"], data["tables"][call]
    group = q.shape[1] // kv.shape[1]
    request = row // m
    position = int(data["lengths"][request]) - m + row % m
    pages = []
    for block in data["ids"][row, head].tolist():
        visible = min(inputs.PAGE, position + 1 - block * inputs.PAGE)
        if block >= 0 and visible > 0:
            pages.append(kv[int(table[request, block]), head, :visible].float())
    k, v = torch.cat(pages).split(inputs.HEAD_DIM, dim=1)
    logits = q[row, head * group:(head + 1) * group].float() @ k.t() * inputs.HEAD_DIM ** -0.5
    return torch.softmax(logits, -1) @ v


def worst_error(torch, data, m, call):
    """Largest error of the first and last row of out, which `call` was the last to write; NaN where one is NaN."""
    out, heads = data["out"], data["kv"].shape[1]
    errors = []
    for row in {0, len(out) - 1}:
        expected = torch.cat([expected_rows(torch, data, m, call, row, head) for head in range(heads)])
        errors.append((expected - out[row].float()).abs().max())
    return torch.stack(errors).max().item()


def measure(torch, peer, key, maker, pool):
    case = dict(zip(KEY, key))
    data = maker.of(case, pool)
    calls = calls_of(peer, data, case["m"])
    times = time_graph(torch, calls, pool.evict)
    error = worst_error(torch, data, case["m"], len(calls) - 1)
    right = error <= TOLERANCE
    median = statistics.median(times)
    print(f"{peer.name:12} {text_of(key):40} {median:8.2f} us ({min(times):.2f} to {max(times):.2f}), largest error "
          f"{error:.4f}{'' if right else '  WRONG'}", flush=True)
    return {"peer": peer.name, **case, "us": median, "fastest_us": min(times), "slowest_us": max(times),
            "max_error": error if error == error else None, "right": right}


def run(options):
    torch = open_torch()
    targets = json.loads((inputs.ROOT / "bench/targets.json").read_text())
    device = torch.device("cuda")
    maker = Inputs(torch, device, inputs.read_real_selection(inputs.ROOT / "data/real_selection.npy"))
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "peers": {}, "cases": []}
    pool, wrong = None, False
    for name in options.peer or NAMES:
        try:
            peer = open_peer(name, torch, options.ops)
        except Unavailable as reason:
            if options.peer or name == vllm_triton.NAME:
                raise
            print(f"decode_peers: {reason}: left out")
            continue
        report["peers"][name] = peer.version
        pool = pool or Pool(torch, device)
        for key in cells_of(targets, name):
            try:
                case = measure(torch, peer, key, maker, pool)
            except Exception as error:
                if peer.must_be_right:
                    raise
                print(f"{peer.name:12} {text_of(key):40} failed: {str(error).splitlines()[0]}", flush=True)
                continue
            report["cases"].append(case)
            wrong = wrong or (peer.must_be_right and not case["right"])
        if options.file:  # after each peer: a fault of the next one ends this process's work on the device
            options.file.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if wrong else 0


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default=HERE / "ops", type=pathlib.Path, help="vLLM's files (default: %(default)s)")
    if arguments[:1] == ["fetch"]:
        vllm_triton.fetch(parser.parse_args(arguments[1:]).ops)
        return 0
    parser.add_argument("--peer", action="append", choices=NAMES, help="these alone (default: all that are there)")
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    try:
        return run(parser.parse_args(arguments))
    except Unavailable as reason:
        print(f"decode_peers: {reason}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
