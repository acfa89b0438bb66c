# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The package around the operators: errors, memory, threads, processes, imports, the command."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import tracemalloc
from importlib import metadata
from pathlib import Path

import msa_cpp
import numpy as np
import pytest
from msa_cpp import _library


def test_an_error_lists_everything_that_is_wrong(step):
    with pytest.raises(ValueError) as caught:
        msa_cpp.attend(step.q.astype(np.float64), step.kv[:, :, :64], step.selection[..., :0], step.batch,
                       out=np.empty((step.tokens, 3, 128), np.float16), softmax_scale=float("nan"))
    error = caught.value
    assert isinstance(error, msa_cpp.Error) and error.code == "invalid_argument"
    text = str(error)
    for part in ("'q' has dtype float64", "64 tokens; allowed: 128", "'selection.topk' is 0", "'softmax_scale'"):
        assert part in text, text
    assert len(error.failures) >= 4 and all(line.startswith("attend: ") for line in error.failures)


def test_outputs_of_a_refused_call_are_untouched(step):
    out = np.full((step.tokens, 4, 128), 3, np.float16)
    with pytest.raises(msa_cpp.Error):
        msa_cpp.attend(step.q, step.kv, step.selection, step.batch, out=out, kv_shard=(2, 2))
    assert (out == 3).all()


def test_errors_of_arguments_that_are_no_tensors(step):
    with pytest.raises(msa_cpp.Error, match="'selection' is '0, 1'; allowed: an array"):
        msa_cpp.attend(step.q, step.kv, "0, 1", step.batch)
    with pytest.raises(msa_cpp.Error, match="kv_dtype"):
        msa_cpp.attend(step.q, step.kv, step.selection, step.batch, kv_dtype="fp7")
    with pytest.raises(msa_cpp.Error, match="num_actual_tokens"):
        msa_cpp.BatchMetadata(step.seq_lens, step.table, num_prefills=1)
    with pytest.raises(msa_cpp.Error, match="bits"):
        msa_cpp.view(step.q, "e4m3")


def test_errors_pickle():
    error = pickle.loads(pickle.dumps(msa_cpp.Error("a\nb", "workspace")))
    assert (error.failures, error.code) == (["a", "b"], "workspace")
    assert copy.copy(error).code == "workspace"


def test_a_call_copies_nothing():
    """A strided cache of 256 MiB: neither Python's nor the process's memory grows by any of it."""
    pages = 2048
    whole = np.zeros((pages, 128, 2, 256), np.float16)
    cache = whole.transpose(0, 2, 1, 3)
    table = np.arange(4, dtype=np.int32)[None] * 500
    batch = msa_cpp.BatchMetadata(np.array([512], np.int32), table)
    q = np.ones((1, 4, 128), np.float16)
    selection = np.array([[[0, 1, 2, 3]] * 2], np.int32)
    out = np.empty_like(q)

    def resident_peak():
        with open("/proc/self/status") as status:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) * 1024

    msa_cpp.attend(q, cache, selection, batch, out=out)
    tracemalloc.start()
    before = resident_peak()
    for _ in range(3):
        msa_cpp.attend(q, cache, selection, batch, out=out)
    grown, traced = resident_peak() - before, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert grown < 8 << 20, f"{grown} bytes for a cache of {whole.nbytes}"
    assert traced < 1 << 20
    assert (out == 0).all()


def test_views_share_memory_and_keep_it_alive():
    array = np.arange(12, dtype=np.uint16).reshape(3, 4)[:, ::2]
    view = msa_cpp.view(array, "bf16")
    assert tuple(view.shape) == (3, 2) and tuple(view.strides) == (4, 2) and str(view.dtype) == "bfloat16"
    back = np.from_dlpack(msa_cpp.view(array))
    back[0, 0] = 77
    assert array[0, 0] == 77
    del array
    assert np.from_dlpack(msa_cpp.view(back))[0, 0] == 77


def test_ml_dtypes_arrays(step):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    index_cache = step.index_k.astype(ml_dtypes.bfloat16)
    want = msa_cpp.index_blocks(step.index_q, msa_cpp.view(step.index_bits, "bf16"), step.batch)
    assert np.array_equal(msa_cpp.index_blocks(step.index_q, index_cache, step.batch), want)
    q = step.q.astype(ml_dtypes.bfloat16)
    out = msa_cpp.attend(q, step.kv.astype(ml_dtypes.bfloat16), step.selection, step.batch)
    assert out.dtype == q.dtype and np.isfinite(out.astype(np.float32)).all()


def test_a_changed_batch_is_read_anew(step):
    batch = msa_cpp.BatchMetadata(np.array([0], np.int32), np.array([[7]], np.int32))
    selection = np.zeros((1, 2, 1), np.int32)
    assert not msa_cpp.attend(step.q, step.kv, selection, batch).any()
    batch.seq_lens[0] = 5  # contents, seen through the same view
    assert msa_cpp.attend(step.q, step.kv, selection, batch).any()
    batch.seq_lens = np.array([0], np.int32)  # another array
    assert not msa_cpp.attend(step.q, step.kv, selection, batch).any()


def test_threads(step):
    want = msa_cpp.attend(step.q, step.kv, step.selection, step.batch)
    wrong = []

    def work():
        for _ in range(30):
            got = msa_cpp.attend(step.q, step.kv, step.selection, step.batch)
            if not np.array_equal(got, want) or msa_cpp.last_backend() != "cpu":
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_fork_after_calls(step):
    want = msa_cpp.attend(step.q, step.kv, step.selection, step.batch)
    child = os.fork()
    if child == 0:
        same = np.array_equal(msa_cpp.attend(step.q, step.kv, step.selection, step.batch), want)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.array_equal(msa_cpp.attend(step.q, step.kv, step.selection, step.batch), want)


def test_import_is_quick_and_brings_no_framework():
    code = (
        "import sys, time; start = time.perf_counter(); import msa_cpp;"
        "took = time.perf_counter() - start;"
        "found = {'torch', 'tvm_ffi', 'numpy', 'vllm', 'sglang', 'flashinfer'} & set(sys.modules);"
        "assert not found, found; print(took)"
    )
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(times) < 0.1, times


def test_the_shared_object_is_a_tvm_ffi_module(step):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    module = tvm_ffi.load_module(msa_cpp.info()["library"])
    assert module.version() == msa_cpp.__version__
    pairs, moved = np.array([[7, 0]]), np.zeros_like(step.kv)
    module.copy_pages(step.kv, moved, pairs, None)
    assert np.array_equal(moved[0], step.kv[7], equal_nan=True)


def test_every_packed_function_is_loaded():
    exported = set(re.findall(rb"\0__tvm_ffi_(\w+)(?=\0)", _library.path().read_bytes()))
    # The command is left out of some builds; whatever else is exported or named, is both.
    assert {name.decode() for name in exported} | {"command"} == set(_library._FUNCTIONS)


def test_the_library_needs_no_more_than_it_says():
    if shutil.which("objdump") is None:
        pytest.skip("objdump is not installed")
    text = subprocess.check_output(["objdump", "-p", str(_library.path())], text=True)
    needed = re.findall(r"NEEDED\s+(\S+)", text)
    allowed = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
    assert all(name in allowed or name.startswith("ld-linux") for name in needed), needed
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", text)]
    assert max(version[:2] for version in versions) <= _library.MINIMUM_GLIBC


def test_a_system_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr(_library, "running_glibc", lambda: "2.17")
    with pytest.raises(ImportError, match="glibc 2.17; needed: 2.36"):
        _library._Library().attend  # noqa: B018


def test_info():
    info = msa_cpp.info()
    assert info["version"] == msa_cpp.__version__
    assert info["cpu"]["threads"] >= 1 and info["cpu"]["isa"] in info["cpu"]["isas_available"]
    assert any(backend["name"] == "cpu" and backend["available"] for backend in msa_cpp.backends())
    assert info["glibc"] == {"minimum": "2.36", "running": _library.running_glibc()}
    assert info["cuda_driver"]["minimum"] == {"12": "525.60.13", "13": "580.65.06"}
    assert info["cuda_driver"]["running"] == _library.running_driver()


def test_the_command():
    def run(*words):
        return subprocess.run([sys.executable, "-m", "msa_cpp", *words], capture_output=True, text=True)

    assert run("--version").stdout == f"msa {msa_cpp.__version__}\n"
    assert json.loads(run("info", "--json").stdout)["version"] == msa_cpp.__version__
    table = run("info").stdout
    assert f"glibc       2.36 or later; here {_library.running_glibc()}\n" in table
    assert "580.65.06 for CUDA 13, or later; here " in table
    assert run("info", "--quiet").stdout == ""
    wrong = run("nosuch")
    assert wrong.returncode == 2 and "nosuch" in wrong.stderr


def test_the_benchmark_of_calls_runs():
    benchmark = Path(__file__).parents[3] / "bench" / "python" / "overhead.py"
    if not benchmark.exists():
        pytest.skip("the tests are not in their tree")
    done = subprocess.run([sys.executable, str(benchmark), "--quick"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(" us (" in line for line in lines) >= 3 and "import msa_cpp" in lines[-1], done.stdout


def test_the_command_imports_no_framework():
    code = ("import sys; from msa_cpp.__main__ import main; sys.argv = ['msa', '--version']; code = main();"
            "sys.exit(code or [m for m in ('torch', 'jax') if sys.modules.get(m)] or None)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_distribution_says_whose_code_it_holds():
    try:
        distribution = metadata.distribution("msa-cpp")
    except metadata.PackageNotFoundError:
        pytest.skip("msa_cpp is on the path, but not installed")
    assert distribution.metadata["License-Expression"] == "Apache-2.0 AND BSD-3-Clause AND MIT"
    for name in distribution.metadata.get_all("License-File"):
        (file,) = [f for f in distribution.files if str(f).endswith(f"licenses/{name}")]
        assert "Copyright" in file.read_text()
    groups = {point.group: point.value for point in distribution.entry_points}
    assert groups == {"console_scripts": "msa_cpp.__main__:main",
                      "sglang.srt.plugins": "msa_cpp.sglang:register",
                      "vllm.general_plugins": "msa_cpp.vllm:register"}


def test_types_are_marked():
    assert (_library.path().parent / "py.typed").exists()
