# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""torch tensors, torch operators, torch.compile and CUDA graphs."""

from __future__ import annotations

import msa_cpp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from msa_cpp import torch_ops  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device"))]


@pytest.fixture(params=DEVICES)
def tensors(request, step):
    """The step's tensors and batch on each device."""
    device = request.param

    def to(array):
        return torch.from_numpy(array).to(device)

    step.batch = msa_cpp.BatchMetadata(
        to(step.seq_lens), to(step.table), cu_seqlens_q=to(step.cu_seqlens_q),
        context_lens=to(step.context_lens), num_prefills=1, num_actual_tokens=step.tokens)
    step.kv = to(step.kv).to(torch.bfloat16)
    step.q = to(step.q).to(torch.bfloat16)
    step.selection = to(step.selection)
    step.index_q = to(step.index_q)
    step.index_cache = to(step.index_k).to(torch.bfloat16)
    return step


def test_module_and_operator_agree(tensors):
    t = tensors
    out, lse = msa_cpp.attend(t.q, t.kv, t.selection, t.batch, return_lse=True)
    again, lse_again = torch_ops.attend(t.q, t.kv, t.selection, t.batch, return_lse=True)
    assert torch.equal(out, again) and torch.equal(lse, lse_again)
    assert out.device == t.q.device and out.dtype == t.q.dtype
    chosen = msa_cpp.index_blocks(t.index_q, t.index_cache, t.batch, topk=2)
    assert torch.equal(chosen, torch_ops.index_blocks(t.index_q, t.index_cache, t.batch, topk=2))
    scores = torch_ops.index_scores(t.index_q, t.index_cache, t.batch)
    assert torch.equal(scores, msa_cpp.index_scores(t.index_q, t.index_cache, t.batch))


def test_fp8_tensors_scales_and_streams(tensors):
    t = tensors
    cache = torch.nan_to_num(t.kv.float()).to(torch.float8_e4m3fn)
    want = msa_cpp.attend(t.q, cache, t.selection, t.batch)
    raw = msa_cpp.attend(t.q, cache.view(torch.uint8), t.selection, t.batch, kv_dtype="fp8_e4m3")
    assert torch.equal(raw, want)
    scale = torch.tensor([0.5], device=t.q.device)
    a = msa_cpp.attend(t.q, cache, t.selection, t.batch, k_scale=scale, v_scale=scale)
    b = torch_ops.attend(t.q, cache, t.selection, t.batch, k_scale=scale, v_scale=scale)
    assert torch.equal(a, b) and not torch.equal(a, want)
    if t.q.is_cuda:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        on_stream = msa_cpp.attend(t.q, cache, t.selection, t.batch, stream=stream.cuda_stream)
        stream.synchronize()
        assert torch.equal(on_stream, want)


def test_opcheck(tensors):
    t = tensors
    fields = torch_ops._fields("attend", t.batch)
    ops = torch.ops.msa_cpp
    out, lse = torch.empty_like(t.q), torch.empty(t.q.shape[:2], device=t.q.device)
    none = (None, None)
    torch.library.opcheck(ops.attend.default, (
        t.q, t.kv, None, None, t.selection, *fields, out, lse, 0.088, 1.0, None, 1.0, None, True, False,
        0, 1, *none))
    chosen = torch.empty(t.tokens, 2, 2, dtype=torch.int32, device=t.q.device)
    torch.library.opcheck(ops.index_blocks.default, (
        t.index_q, t.index_cache, *fields, chosen, 0, 1, False, False, *none))
    scores = torch.empty(2, 4, t.tokens, device=t.q.device)
    torch.library.opcheck(ops.index_scores.default, (t.index_q, t.index_cache, *fields, scores, False, *none))
    valid = torch.full((t.tokens,), 2, dtype=torch.int32, device=t.q.device)
    torch.library.opcheck(ops.select_blocks.default, (
        torch.zeros_like(scores), valid, chosen, t.tokens, 0, 1, False, *none))
    torch.library.opcheck(ops.merge_states.default, (
        torch.zeros_like(out), torch.zeros_like(lse), torch.zeros_like(out), torch.zeros_like(lse), out, lse))
    pairs = torch.tensor([[7, 0]], device=t.q.device)
    torch.library.opcheck(ops.copy_pages.default, (t.kv, torch.zeros_like(t.kv), pairs))
    k = torch.zeros(2, 2, 128, dtype=torch.bfloat16, device=t.q.device)
    slots = torch.tensor([0, 130], device=t.q.device)
    torch.library.opcheck(ops.insert_cache.default, (
        k, k, slots, torch.zeros_like(t.kv), None, None, None, None, None, 1.0, None, 1.0, None, None))
    qkv = torch.ones(2, 8 * 128, dtype=torch.bfloat16, device=t.q.device)
    norm = torch.zeros(128, device=t.q.device)
    torch.library.opcheck(ops.write_cache.default, (
        qkv, slots * 0, torch.ones(4, 64, device=t.q.device), norm, norm, None, None, 1e-6, slots, None,
        torch.empty(2, 4, 128, dtype=torch.bfloat16, device=t.q.device), torch.zeros_like(t.kv), None, None,
        None, None, 1.0, None, 1.0, None, None))


def test_compile_without_graph_breaks(tensors, monkeypatch):
    """On a device the neighbours are kernels of Triton's; on a CPU they are torch's own, as a compiler
    of C++ takes half a minute over two lines."""
    from torch._inductor import config

    # A pool of compiling processes, each of which imports torch, is for graphs larger than this one.
    monkeypatch.setattr(config, "compile_threads", 1)
    t = tensors
    weight = torch.eye(128, dtype=t.q.dtype, device=t.q.device) * 2

    def before(q):
        return q * 2 if q.is_cuda else torch.matmul(q.reshape(-1, 128), weight).view_as(q)

    def after(out):
        return out + 1 if out.is_cuda else torch.matmul(out.reshape(-1, 128), weight)

    @torch.compile(fullgraph=True)
    def layer(q, kv, index_q, index_cache, batch):
        chosen = torch_ops.index_blocks(index_q, index_cache, batch, topk=2)
        return after(torch_ops.attend(before(q), kv, chosen, batch))

    chosen = msa_cpp.index_blocks(t.index_q, t.index_cache, t.batch, topk=2)
    want = after(msa_cpp.attend(before(t.q), t.kv, chosen, t.batch))
    assert torch.equal(layer(t.q, t.kv, t.index_q, t.index_cache, t.batch), want)


def test_errors_come_through_the_operator(tensors):
    t = tensors
    with pytest.raises(msa_cpp.Error, match="'selection.topk' is 0"):
        torch_ops.attend(t.q.double(), t.kv, t.selection[..., :0], t.batch)


@pytest.mark.parametrize("op, wrong, text", [
    ("attend", dict(q=None), "attend: argument 'q' is None; allowed: a torch.Tensor"),
    ("attend", dict(batch=3), "attend: argument 'batch' is <int>; allowed: a msa_cpp.BatchMetadata"),
    ("attend", dict(kv_cache=(1, 2, 3)), "attend: argument 'kv_cache' is a tuple of 3; allowed"),
    ("attend", dict(kv_shard=3), "attend: argument 'kv_shard' is 3; allowed: a pair (rank, world)"),
    ("attend", dict(kv_shard=(2**32, 2**32 + 1)), "argument 'kv_shard.rank' is 4294967296; allowed"),
    ("attend", dict(lse_out=torch.zeros(7, 4).double()), "argument 'lse_out' has dtype float64; allowed"),
    ("index_blocks", dict(topk=-1), "index_blocks: argument 'topk' is -1; allowed: 1 to 64"),
    ("index_blocks", dict(index_q=None), "index_blocks: argument 'index_q' is None; allowed"),
    ("index_scores", dict(batch=None), "index_scores: argument 'batch' is None; allowed"),
])
def test_wrong_arguments_are_named(step, op, wrong, text):
    batch = msa_cpp.BatchMetadata(
        torch.from_numpy(step.seq_lens), torch.from_numpy(step.table),
        cu_seqlens_q=torch.from_numpy(step.cu_seqlens_q),
        context_lens=torch.from_numpy(step.context_lens), num_prefills=1, num_actual_tokens=step.tokens)
    right = dict(index_q=torch.from_numpy(step.index_q), batch=batch,
                 index_cache=torch.from_numpy(step.index_k).to(torch.bfloat16))
    if op == "attend":
        right = dict(q=torch.from_numpy(step.q), kv_cache=torch.from_numpy(step.kv),
                     selection=torch.from_numpy(step.selection), batch=batch)
    if "kv_shard" in wrong or "batch" not in wrong:
        getattr(torch_ops, op)(**right)
    with pytest.raises(msa_cpp.Error) as caught:
        getattr(torch_ops, op)(**{**right, **wrong})
    assert text in str(caught.value)


def test_tensors_that_torch_does_not_export_are_named(step):
    q = torch.from_numpy(step.q)
    for wrong in (q.to("meta"), q.reshape(-1, 128).to_sparse()):
        with pytest.raises(msa_cpp.Error, match="'q' is <torch.Tensor of shape .*>; allowed: an array"):
            msa_cpp.attend(wrong, step.kv, step.selection, step.batch, out=torch.empty_like(q))


def test_a_batch_may_be_made_inside_a_compiled_function(step):
    @torch.compile(fullgraph=True, backend="eager")
    def layer(q, kv, selection, lengths, table):
        return torch_ops.attend(q, kv, selection, msa_cpp.BatchMetadata(lengths, table))

    arguments = [torch.from_numpy(a) for a in (step.q[:2], step.kv, step.selection[:2],
                                               step.seq_lens[:2], step.table[:2])]
    want = msa_cpp.attend(*arguments[:3], msa_cpp.BatchMetadata(*arguments[3:]))
    assert torch.equal(layer(*arguments), want)


def test_streams_of_any_kind_have_a_handle():
    from msa_cpp import _operators

    class OfTorch:
        cuda_stream = 7

    class OfTheProtocol:
        def __cuda_stream__(self):
            return 0, 7

    assert [_operators._stream_handle(s) for s in (7, OfTorch(), OfTheProtocol())] == [7, 7, 7]
    with pytest.raises(msa_cpp.Error, match="'stream' is 'x'; allowed: a cudaStream_t"):
        _operators._stream_handle("x")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("api", ["module", "operator"])
def test_cuda_graph_replays_with_new_contents(step, api):
    ops = msa_cpp if api == "module" else torch_ops
    cuda = dict(device="cuda")
    table = torch.tensor([[7, 2, 5, 0], [1, 9, 3, 0]], dtype=torch.int32, **cuda)
    lengths = torch.tensor([300, 129], dtype=torch.int32, **cuda)
    batch = msa_cpp.BatchMetadata(lengths, table)
    kv = torch.randn(11, 1, 128, 256, dtype=torch.bfloat16, **cuda)
    index_cache = torch.randn(11, 128, 128, dtype=torch.bfloat16, **cuda)
    q = torch.randn(2, 16, 128, dtype=torch.bfloat16, **cuda)
    index_q = torch.randn(2, 1, 128, dtype=torch.bfloat16, **cuda)

    def layer():
        return ops.attend(q, kv, ops.index_blocks(index_q, index_cache, batch, topk=2), batch)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer()
    for new in ((300, 129), (12, 400), (0, 511)):
        lengths.copy_(torch.tensor(new, dtype=torch.int32))
        q.normal_()
        graph.replay()
        assert torch.equal(out, layer()), new


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_cuda_call_copies_no_cache(step):
    kv = torch.zeros(2048, 128, 2, 256, dtype=torch.bfloat16, device="cuda").transpose(1, 2)
    batch = msa_cpp.BatchMetadata(torch.tensor([512], dtype=torch.int32, device="cuda"),
                                  torch.tensor([[0, 500, 1000, 1500]], dtype=torch.int32, device="cuda"))
    q = torch.ones(1, 4, 128, dtype=torch.bfloat16, device="cuda")
    selection = torch.tensor([[[0, 1, 2, 3]] * 2], dtype=torch.int32, device="cuda")
    out = torch.empty_like(q)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    msa_cpp.attend(q, kv, selection, batch, out=out)
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < 32 << 20
    assert not out.any()


def test_numpy_and_torch_give_the_same_bits(step):
    want = msa_cpp.attend(step.q, step.kv, step.selection, step.batch)
    out = msa_cpp.attend(torch.from_numpy(step.q), torch.from_numpy(step.kv),
                         torch.from_numpy(step.selection), step.batch)
    assert np.array_equal(out.numpy(), want)
