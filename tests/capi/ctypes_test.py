# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The C ABI from Python's ctypes, standard library only: questions, handles, calls and one error.

Usage: ctypes_test.py path/to/libmsa.so
"""

import array
import ctypes
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint64, c_void_p

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


class StepInputs(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("query_start_loc", POINTER(c_int32)),
        ("seq_lens_host", POINTER(c_int32)),
        ("num_requests", c_int64),
        ("seq_lens", Tensor),
        ("block_table", Tensor),
        ("slot_mapping", Tensor),
        ("num_actual_tokens", c_int64),
        ("max_seq_len", c_int64),
    ]


class PageAllocatorConfig(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("pages", c_int64),
        ("reserve_null_page", c_int32),
        ("pages_per_hash", c_int32),
    ]


class PageRequest(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("hashes", POINTER(c_uint64)),
        ("num_hashes", c_int64),
        ("prompt_tokens", c_int64),
        ("reserve_tokens", c_int64),
    ]


class BackendInfo(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("reasons", POINTER(c_char_p)),
        ("num_reasons", c_int64),
    ]


class CpuInfo(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("isa", c_char_p),
        ("available", POINTER(c_char_p)),
        ("num_available", c_int64),
        ("threads", c_int64),
    ]


class KVLayoutList(Structure):
    _fields_ = [("layouts", POINTER(c_int32)), ("count", c_int64)]


class LayerContext(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("topk_indices", Tensor),
        ("k_scale", Scale),
        ("v_scale", Scale),
    ]


class LayerMetadata(Structure):
    _fields_ = [("layer", c_char_p), ("metadata", c_void_p)]


class ForwardContext(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("metadata", POINTER(LayerMetadata)),
        ("num_metadata", c_int64),
        ("workspace_cap", c_size_t),
        ("workspace", Workspace),
        ("stream", c_void_p),
    ]


class SparseImplConfig(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("scale", c_float),
        ("kv_cache_dtype", c_int32),
        ("invariant", c_int32),
    ]


class SparseForwardArgs(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("layer", POINTER(LayerContext)),
        ("query", Tensor),
        ("kv_cache", Tensor),
        ("output", Tensor),
        ("context", POINTER(ForwardContext)),
    ]


def check_what_serves(msa):
    """Backends, instruction sets and layouts."""
    count, info, cpu = c_int64(), BackendInfo(), CpuInfo()
    msa.msa_backend_info_init(byref(info), c_size_t(ctypes.sizeof(info)))
    msa.msa_cpu_info_init(byref(cpu), c_size_t(ctypes.sizeof(cpu)))
    assert msa.msa_backend_count(byref(count)) == 0
    on = []
    for index in range(count.value):
        assert msa.msa_get_backend_info(c_int64(index), byref(info)) == 0
        reasons = info.reasons[: info.num_reasons]
        assert all(reasons), reasons
        if not reasons:
            on.append(info.name)
    assert on.count(b"cpu") == 1, on
    assert msa.msa_get_cpu_info(byref(cpu)) == 0, msa.msa_last_error().decode()
    assert cpu.isa in cpu.available[: cpu.num_available] and cpu.threads >= 1

    users = (KVLayoutList * 2)(KVLayoutList(None, -1), KVLayoutList((c_int32 * 2)(3, 1), 2))
    layouts = (c_int32 * 6)()
    status = msa.msa_negotiate_layouts(users, c_int64(2), layouts, c_int64(6), byref(count))
    assert status == 0 and layouts[: count.value] == [3, 1], layouts[: count.value]


def pages_of_a_sequence(msa, tokens):
    """Pages that an allocator hands out for the tokens, its handles freed again."""
    config, request = PageAllocatorConfig(), PageRequest()
    msa.msa_page_allocator_config_init(byref(config), c_size_t(ctypes.sizeof(config)))
    msa.msa_page_request_init(byref(request), c_size_t(ctypes.sizeof(request)))
    config.pages, config.reserve_null_page = 3, 0
    request.prompt_tokens = request.reserve_tokens = tokens
    allocator, sequence = c_void_p(), c_void_p()
    assert msa.msa_page_allocator_create(byref(config), byref(allocator)) == 0
    assert msa.msa_page_allocator_begin(allocator, byref(request), byref(sequence)) == 0
    pages, count = POINTER(c_int32)(), c_int64()
    assert msa.msa_page_sequence_pages(sequence, byref(pages), byref(count)) == 0
    found = pages[: count.value]
    none = c_void_p(1)
    assert msa.msa_page_allocator_begin(allocator, byref(request), byref(none)) == 0
    assert none.value is None, "three pages serve one such sequence"
    msa.msa_page_allocator_destroy(allocator)
    msa.msa_page_sequence_destroy(sequence)
    return found


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

    assert pages_of_a_sequence(msa, 300) == [0, 1, 2]
    check_what_serves(msa)

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
    step, builder, metadata = StepInputs(), c_void_p(), c_void_p()
    msa.msa_step_inputs_init(byref(step), c_size_t(ctypes.sizeof(step)))
    step.query_start_loc = (c_int32 * 2)(0, 1)
    step.seq_lens_host = (c_int32 * 1)(300)
    step.num_requests = step.num_actual_tokens = 1
    step.seq_lens = dense(lens, I32, 1)
    step.block_table = dense(table, I32, 1, 3)
    assert msa.msa_metadata_builder_create(c_int64(1), byref(builder)) == 0
    status = msa.msa_metadata_builder_build(builder, byref(step), byref(metadata))
    assert status == 0, msa.msa_last_error().decode()
    assert msa.msa_sparse_metadata_batch(metadata, byref(batch)) == 0
    assert (batch.num_decodes, batch.num_prefills, batch.max_seq_len) == (1, 0, 300)
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

    # The same step as an engine's layer.
    config, layer, context = SparseImplConfig(), LayerContext(), ForwardContext()
    forward, impl, again = SparseForwardArgs(), c_void_p(), zeros(4 * 128)
    msa.msa_sparse_impl_config_init(byref(config), c_size_t(ctypes.sizeof(config)))
    msa.msa_layer_context_init(byref(layer), c_size_t(ctypes.sizeof(layer)))
    msa.msa_forward_context_init(byref(context), c_size_t(ctypes.sizeof(context)))
    msa.msa_sparse_forward_args_init(byref(forward), c_size_t(ctypes.sizeof(forward)))
    config.num_heads, config.num_kv_heads = 4, 1
    assert msa.msa_sparse_impl_create(byref(config), byref(impl)) == 0
    layer.name, layer.topk_indices = b"layer", args.selection
    context.metadata = ctypes.pointer(LayerMetadata(b"layer", metadata))
    context.num_metadata, context.workspace = 1, args.workspace
    forward.layer, forward.context = ctypes.pointer(layer), ctypes.pointer(context)
    forward.query, forward.kv_cache = dense(q, BF16, 1, 512), args.kv_cache.packed
    forward.output = dense(again, BF16, 1, 512)
    status = msa.msa_sparse_impl_forward(impl, byref(forward))
    assert status == 0, msa.msa_last_error().decode()
    assert again == out

    msa.msa_sparse_impl_destroy(impl)
    msa.msa_sparse_metadata_destroy(metadata)
    msa.msa_metadata_builder_destroy(builder)

    args.q.shape[2] = 64
    before = bytes(out)
    assert msa.msa_attend(byref(args)) == INVALID_ARGUMENT
    text = msa.msa_last_error().decode()
    assert text.startswith("attend: argument 'q'") and "64" in text, text
    assert bytes(out) == before
    print("msa", msa.msa_version().decode(), "through ctypes: questions, handles, calls, one error")


if __name__ == "__main__":
    main(sys.argv[1])
