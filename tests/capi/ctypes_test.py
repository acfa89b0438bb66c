# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The C ABI from Python's ctypes, standard library only: one call and one error.

Usage: ctypes_test.py path/to/libmsa.so
"""

import array
import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p

BF16, I32 = 1, 5
INVALID_ARGUMENT = 1


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("device_type", c_int32),
        ("device_index", c_int32),
        ("rank", c_int32),
        ("shape", c_int64 * 5),
        ("stride", c_int64 * 5),
    ]


class Scale(Structure):
    _fields_ = [("tensor", Tensor), ("value", c_float)]


class KVCache(Structure):
    _fields_ = [("packed", Tensor), ("k", Tensor), ("v", Tensor)]


class Workspace(Structure):
    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


class Batch(Structure):
    _fields_ = [("struct_size", c_size_t)]
    _fields_ += [(n, Tensor) for n in ("seq_lens", "block_table", "cu_seqlens_q", "context_lens")]
    _fields_ += [
        (n, c_int64)
        for n in (
            "num_decodes",
            "num_prefills",
            "decode_query_len",
            "num_actual_tokens",
            "max_query_len",
            "max_seq_len",
        )
    ]


class AttendArgs(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("q", Tensor),
        ("kv_cache", KVCache),
        ("selection", Tensor),
        ("batch", POINTER(Batch)),
        ("out", Tensor),
        ("lse", Tensor),
        ("k_scale", Scale),
        ("v_scale", Scale),
        ("softmax_scale", c_float),
        ("causal", c_int32),
        ("invariant", c_int32),
        ("shard_rank", c_int32),
        ("shard_world", c_int32),
        ("workspace_cap", c_size_t),
        ("workspace", Workspace),
        ("stream", c_void_p),
    ]


def main(path):
    msa = ctypes.CDLL(path)
    for name in ("msa_version", "msa_last_error", "msa_last_backend"):
        getattr(msa, name).restype = c_char_p

    def dense(values, dtype, *shape):
        view = Tensor()
        dims = (c_int64 * len(shape))(*shape)
        data = c_void_p(values.buffer_info()[0])
        assert msa.msa_tensor_dense(data, dtype, len(shape), dims, byref(view)) == 0
        return view

    # Values are 0, 1 and 2 by page, all logits equal: blocks 0 and 2 are pages 2 and 1.
    zeros = lambda n: array.array("H", bytes(2 * n))
    cache = zeros(0)
    for value in (0x0000, 0x3F80, 0x4000):
        cache += (zeros(128) + array.array("H", [value] * 128)) * 128
    q, out = zeros(4 * 128), zeros(4 * 128)
    lens, table = array.array("i", [300]), array.array("i", [2, 0, 1])
    blocks = array.array("i", [0, 2])

    batch, args = Batch(), AttendArgs()
    msa.msa_batch_init(byref(batch), c_size_t(ctypes.sizeof(batch)))
    msa.msa_attend_args_init(byref(args), c_size_t(ctypes.sizeof(args)))
    assert args.struct_size == ctypes.sizeof(args)
    assert args.shard_world == 1 and args.workspace_cap == 256 << 20
    batch.seq_lens = dense(lens, I32, 1)
    batch.block_table = dense(table, I32, 1, 3)
    batch.num_decodes = batch.num_actual_tokens = batch.max_query_len = 1
    batch.max_seq_len = 300
    args.q = dense(q, BF16, 1, 4, 128)
    args.kv_cache.packed = dense(cache, BF16, 3, 1, 128, 256)
    args.selection = dense(blocks, I32, 1, 1, 2)
    args.batch = ctypes.pointer(batch)
    args.out = dense(out, BF16, 1, 4, 128)

    size = c_size_t()
    status = msa.msa_attend_workspace_size(byref(args), byref(size))
    assert status == 0, msa.msa_last_error().decode()
    workspace = ctypes.create_string_buffer(max(1, size.value))
    args.workspace = Workspace(ctypes.addressof(workspace), size.value)
    status = msa.msa_attend(byref(args))
    assert status == 0, msa.msa_last_error().decode()
    assert set(out) == {0x3FDF}, sorted(set(out))  # bf16((128 * 2 + 44) / 172)
    assert msa.msa_last_backend() == b"cpu"

    args.q.shape[2] = 64
    before = bytes(out)
    assert msa.msa_attend(byref(args)) == INVALID_ARGUMENT
    text = msa.msa_last_error().decode()
    assert text.startswith("attend: argument 'q'") and "64" in text, text
    assert bytes(out) == before
    print("msa", msa.msa_version().decode(), "through ctypes: one call, one error")


if __name__ == "__main__":
    main(sys.argv[1])
