# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Arrays of jax and cupy, which are read and written as they lie.

Each in a process of its own: jax starts threads, where another test forks, and both take a device's
memory as they like.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import msa_cpp
import pytest

ON_HOST = """
import jax.numpy as jnp, msa_cpp, numpy as np
q, kv = jnp.ones((1, 4, 128), jnp.float16), jnp.ones((2, 2, 128, 256), jnp.float16)
selection = jnp.zeros((1, 2, 1), jnp.int32)
batch = msa_cpp.BatchMetadata(jnp.array([9], jnp.int32), jnp.array([[1]], jnp.int32))
out = np.zeros(q.shape, np.float16)
msa_cpp.attend(q, kv, selection, batch, out=out)
assert (out == 1).all()
for call, name in (
    (lambda a: msa_cpp.attend(q, kv, selection, batch, out=a), "out"),
    (lambda a: msa_cpp.merge_states(q, jnp.zeros((1, 4)), out, np.zeros((1, 4), np.float32), out=a,
                                    lse_out=np.zeros((1, 4), np.float32)), "out"),
):
    immutable = jnp.zeros_like(q)
    try:
        call(immutable)
    except msa_cpp.Error as error:
        assert f"'{name}' is <" in str(error) and ": an array that never changes>; allowed" in str(error)
    else:
        raise AssertionError("an array of jax was written")
    assert not np.asarray(immutable).any()
"""

# A step, and what it gives on the host. `to` brings the inputs to the device.
ON_DEVICE = """
import cupy, msa_cpp, numpy as np
rng = np.random.default_rng(0)
q, kv = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 4, 128), (6, 2, 128, 256)))
selection = np.array([[[0, 2], [1, -1]], [[1, 0], [0, 0]]], np.int32)
lengths, table = np.array([300, 129], np.int32), np.array([[4, 1, 3], [5, 2, 0]], np.int32)
want, want_lse = msa_cpp.attend(q, kv, selection, msa_cpp.BatchMetadata(lengths, table), return_lse=True)
assert msa_cpp.last_backend() == "cpu"
def step(to, stream=None, kv=kv, kv_to=None, **more):
    inputs = to(q), (kv_to or to)(kv), to(selection), msa_cpp.BatchMetadata(to(lengths), to(table))
    out, lse = cupy.full(q.shape, cupy.nan, q.dtype), cupy.full(q.shape[:2], cupy.nan, np.float32)
    size = msa_cpp.attend_workspace_size(*inputs, out=out, lse_out=lse, **more)
    memory = cupy.full(max(size, 1), 255, np.uint8)
    msa_cpp.attend(*inputs, out=out, lse_out=lse, workspace=memory, stream=stream, **more)
    assert msa_cpp.last_backend() not in ("", "cpu")
    cupy.cuda.get_current_stream().synchronize()
    return out.get(), lse.get()
def check(got, lse):
    assert np.abs(got.astype(float) - want).max() < 1.7e-2 and np.abs(lse - want_lse).max() < 1e-3
"""

CUPY = ON_DEVICE + """
out, lse = step(cupy.asarray)
check(out, lse)
again = step(cupy.asarray, kv=np.ascontiguousarray(kv.transpose(0, 2, 1, 3)),
             kv_to=lambda a: cupy.asarray(a).transpose(0, 2, 1, 3))
assert np.array_equal(again[0], out), "strides"
own = cupy.cuda.Stream(non_blocking=True)
with own:
    for stream in [own.ptr] + [own] * hasattr(own, "__cuda_stream__"):
        assert np.array_equal(step(cupy.asarray, stream)[0], out), "stream"
step(cupy.asarray, kv=np.zeros(kv.shape, np.uint8), kv_dtype="fp8_e4m3")
device = [cupy.asarray(a) for a in (q, kv, selection, lengths, table)]
try:
    msa_cpp.attend(*device[:3], msa_cpp.BatchMetadata(*device[3:]))
except msa_cpp.Error as error:
    assert "'out' is None; allowed: an array" in str(error), error
else:
    raise AssertionError("an output was made for cupy")
"""

JAX_ON_DEVICE = ON_DEVICE + """
import jax
on_device = lambda a: jax.device_put(a, jax.devices("gpu")[0]).block_until_ready()
check(*step(on_device))
"""


def run(code, **environment):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr


def needed(*modules, device=False):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    if device and not any(b["available"] and b["name"] != "cpu" for b in msa_cpp.backends()):
        pytest.skip("no CUDA device")


def test_jax_arrays_are_read_but_not_written():
    needed("jax")
    run(ON_HOST, JAX_PLATFORMS="cpu")


def test_jax_arrays_on_a_device():
    needed("jax", "cupy", device=True)
    run(JAX_ON_DEVICE, XLA_PYTHON_CLIENT_PREALLOCATE="false")


def test_cupy_arrays():
    needed("cupy", device=True)
    run(CUPY)
