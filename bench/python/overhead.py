# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What a call costs beside its work: `attend` of a step without tokens on the CPU backend, which
checks all its arguments and has nothing to compute; outputs given, the LSE among them.

    python bench/python/overhead.py bench/results/python-overhead.json
    python bench/python/overhead.py --quick    # a few calls each: does it run?

Each figure is the fastest of 100 rounds of 1,000 calls, in microseconds: rounds of milliseconds, some of
which no other process disturbs. `import_ms` is the fastest of five fresh interpreters. Without torch
its lines are left out; those of CUDA tensors need a device, whose backend launches nothing for such a step.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import timeit
from datetime import datetime, timezone

import msa_cpp
import numpy as np
from msa_cpp._library import lib

QUICK = "--quick" in sys.argv
CALLS, ROUNDS = (2, 1) if QUICK else (1000, 100)
TARGETS = {"module": 3.0, "torch": 6.0}


def microseconds(call):
    return round(min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6, 2)


def import_ms():
    code = "import time; t = time.perf_counter(); import msa_cpp; print(time.perf_counter() - t)"
    return round(min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(1 if QUICK else 5)) * 1e3, 1)


def main():
    q = np.zeros((4, 16, 128), np.float16)
    cache = np.zeros((4, 1, 128, 256), np.float16)
    selection = np.zeros((4, 1, 16), np.int32)
    out, lse = np.zeros_like(q), np.zeros((4, 16), np.float32)
    lengths, table = np.zeros(0, np.int32), np.zeros((0, 4), np.int32)

    def module(arrays, batch):
        a, b, c, d, e = arrays
        return lambda: msa_cpp.attend(a, b, c, batch, out=d, lse_out=e)

    arrays = (q, cache, selection, out, lse)
    batch = msa_cpp.BatchMetadata(lengths, table)
    views = tuple(map(msa_cpp.view, arrays))
    packed = (*views[:2], None, None, views[2], *batch.packed(), *views[3:], 0.088, 1.0, None, 1.0, None, True,
              False, 0, 1)
    times = {
        "packed function, views": microseconds(lambda: lib.attend(*packed)),
        "module, views": microseconds(module(views, batch)),
        "module, numpy": microseconds(module(arrays, batch)),
    }
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        from msa_cpp import torch_ops

        tensors = tuple(map(torch.from_numpy, arrays))
        torch_batch = msa_cpp.BatchMetadata(torch.from_numpy(lengths), torch.from_numpy(table))
        a, b, c, d, e = tensors
        times["module, torch"] = microseconds(module(tensors, torch_batch))
        operator = torch.ops.msa_cpp.attend.default
        args = (a, b, None, None, c, *torch_ops._fields("attend", torch_batch), d, e)
        times["torch operator"] = microseconds(lambda: operator(*args))
        times["torch_ops function"] = microseconds(
            lambda: torch_ops.attend(a, b, c, torch_batch, out=d, lse_out=e))
        with torch.inference_mode():  # as engines call
            times["torch operator, inference_mode"] = microseconds(lambda: operator(*args))
            times["torch_ops function, inference_mode"] = microseconds(
                lambda: torch_ops.attend(a, b, c, torch_batch, out=d, lse_out=e))
        if torch.cuda.is_available():
            tensors = tuple(tensor.cuda() for tensor in tensors)
            cuda_batch = msa_cpp.BatchMetadata(torch_batch.seq_lens.cuda(), torch_batch.block_table.cuda())
            a, b, c, d, e = tensors
            times["module, torch CUDA"] = microseconds(module(tensors, cuda_batch))
            with torch.inference_mode():
                times["torch_ops function, CUDA, inference_mode"] = microseconds(
                    lambda: torch_ops.attend(a, b, c, cuda_batch, out=d, lse_out=e))
    for name, value in times.items():
        print(f"{name:<42} {value:6.2f} us ({TARGETS['torch' if name.startswith('torch') else 'module']:.0f} allowed)")
    record = {
        "what": "attend of a step without tokens, CPU backend, outputs given; us a call, fastest round",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "python": platform.python_version(),
        "cpu": next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line), ""),
        "torch": getattr(torch, "__version__", None),
        "targets_us": TARGETS,
        "us": times,
        "import_ms": import_ms(),
    }
    files = [word for word in sys.argv[1:] if word != "--quick"]
    if files:
        with open(files[0], "w") as file:
            json.dump(record, file, indent=2)
            file.write("\n")
    print(f"{'import msa_cpp':<42} {record['import_ms']} ms")


main()
