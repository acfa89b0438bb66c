# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""msa_cpp.flashinfer on torch tensors, and under the caller that it stands in for.

With MSA_FLASHINFER_CALLER=<file>, the file of vLLM that calls flashinfer.msa_ops for MiniMax-M3
(the Python source sparse_attention_flashinfer.py, or the page of vLLM's documentation that shows
it), its classes run unchanged, `flashinfer.msa_ops` being msa_cpp.flashinfer. What they import from
vLLM stands below as plain classes with the same attributes.
"""

import ast
import dataclasses
import enum
import os
import pathlib
import re
import sys
import types

import flashinfer_reference as reference
import msa_cpp
import msa_cpp.flashinfer as drop_in
import numpy as np
import pytest

torch = pytest.importorskip("torch")

PAGE = DIM = 128
TOPK = 16
TYPES = {
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "f16": torch.float16,
    "e5m2": torch.float8_e5m2,
}


def tensor(bits, dtype):
    return torch.from_numpy(bits.view(np.int16) if bits.dtype == np.uint16 else bits).view(
        TYPES[dtype]
    )


def numbers(t):
    return t.float().double().numpy()


class Step:
    """A step of an engine: decode requests of two tokens each, then prefill requests, in one
    cache.
    """

    def __init__(self, dtype="bf16", hq=8, hkv=2, seed=5):
        rng = np.random.default_rng(seed)
        self.hq, self.hkv, self.dtype = hq, hkv, dtype
        self.m, self.decodes = 2, 3
        self.lengths = np.array([700, 129, 2500, 400, 60], np.int32)
        self.queries = np.array([2, 2, 2, 33, 60])
        starts = np.concatenate([[0], np.cumsum(self.queries)])
        self.starts = starts.astype(np.int32)
        self.tokens, self.decode_tokens = int(starts[-1]), self.m * self.decodes
        blocks = -(-self.lengths // PAGE)
        pages = int(blocks.sum()) + 1
        self.table = np.zeros((5, blocks.max() + 3), np.int32)
        ids = rng.permutation(np.arange(1, pages))
        for r, count in enumerate(blocks):
            self.table[r, :count], ids = ids[:count], ids[count:]
        self.cache_bits = reference.random_bits(rng, (pages, hkv, PAGE, 2 * DIM), dtype)
        self.rows = self.tokens + 3  # engines pad to sizes of captured graphs
        self.query_bits = reference.random_bits(rng, (self.rows, hq * DIM), "bf16")
        self.selection = np.full((-(-self.rows // 4) * 4, hkv, TOPK), -1, np.int32)
        for t, (_, position) in enumerate(reference.positions(self.starts, self.lengths)):
            valid = position // PAGE + 1
            for h in range(hkv):
                chosen = np.sort(rng.permutation(valid)[:TOPK])
                self.selection[t, h, : len(chosen)] = chosen
        self.scale = DIM**-0.5

    def expected(self, k_scale=1.0, v_scale=1.0):
        q = reference.values(self.query_bits, "bf16")[: self.tokens].reshape(
            self.tokens, self.hq, DIM
        )
        cache = reference.values(self.cache_bits, self.dtype)
        return reference.attention(
            q,
            cache[..., :DIM],
            cache[..., DIM:],
            self.selection.swapaxes(0, 1),
            self.starts,
            self.table,
            self.lengths,
            scale=self.scale * k_scale,
            v_scale=v_scale,
        )


@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3", "e5m2"])
def test_halves_of_one_cache_and_a_view_of_the_selection(dtype):
    step = Step(dtype)
    nd = step.decode_tokens
    k, v = tensor(step.cache_bits, dtype).split(DIM, dim=-1)
    query = tensor(step.query_bits, "bf16")[: step.tokens].view(-1, step.hq, DIM)
    selection = torch.from_numpy(step.selection).transpose(0, 1)
    assert not selection.is_contiguous()
    table, lengths = torch.from_numpy(step.table), torch.from_numpy(step.lengths)
    expected, expected_lse = step.expected()
    decoded, lse = drop_in.msa_sparse_decode_attention(
        query[:nd],
        k,
        v,
        selection[:, :nd],
        page_table=table[:3],
        seqused_k=lengths[:3],
        seqlen_q=2,
        return_softmax_lse=True,
    )
    assert decoded.dtype == torch.bfloat16 and decoded.shape == (nd, step.hq, DIM)
    assert np.abs(numbers(decoded) - expected[:nd]).max() < 1.7e-2
    assert np.abs(numbers(lse) - expected_lse[:nd]).max() < 2e-4
    out = torch.empty(step.tokens - nd, step.hq + 1, DIM, dtype=torch.bfloat16)[
        :, 1:
    ]  # rows with a gap between them
    prefilled = drop_in.msa_sparse_attention(
        query[nd:],
        k,
        v,
        selection[:, nd : step.tokens],
        torch.from_numpy(step.starts[3:] - nd),
        causal=True,
        page_table=table[3:],
        seqused_k=lengths[3:],
        out=out,
    )
    assert prefilled is out
    assert np.abs(numbers(out) - expected[nd:]).max() < 1.7e-2


def test_bytes_with_a_named_type():
    step = Step("e4m3")
    k, v = torch.from_numpy(step.cache_bits).split(DIM, dim=-1)
    arguments = {
        "page_table": torch.from_numpy(step.table[:3]),
        "seqused_k": torch.from_numpy(step.lengths[:3]),
        "seqlen_q": 2,
    }
    query = tensor(step.query_bits, "bf16")[:6].view(-1, step.hq, DIM)
    selection = torch.from_numpy(step.selection).transpose(0, 1)[:, :6]
    out = drop_in.msa_sparse_decode_attention(query, k, v, selection, kv_dtype="e4m3", **arguments)
    assert np.abs(numbers(out) - step.expected()[0][:6]).max() < 1.7e-2
    with pytest.raises(ValueError, match="u8"):
        drop_in.msa_sparse_decode_attention(query, k, v, selection, **arguments)


def test_scores_and_choice():
    rng = np.random.default_rng(2)
    keys = reference.random_bits(rng, (9, 1, PAGE, DIM), "bf16")
    queries = reference.random_bits(rng, (6, 4, DIM), "bf16")
    table, lengths, starts = (
        np.arange(1, 9, dtype=np.int32)[None],
        np.array([1000], np.int32),
        np.array([0, 6], np.int32),
    )
    scores = drop_in.msa_proxy_score(
        tensor(queries, "bf16"),
        tensor(keys, "bf16"),
        torch.from_numpy(starts),
        page_table=torch.from_numpy(table),
        seqused_k=torch.from_numpy(lengths),
        max_seqlen_q=6,
        reduce_heads=True,
    )
    expected = reference.proxy_score(
        reference.values(queries, "bf16"), reference.values(keys, "bf16"), starts, table, lengths, 8
    ).max(axis=0, keepdims=True)
    assert scores.dtype == torch.float32 and scores.shape == (1, 8, 6)
    assert np.abs(scores.numpy() - expected).max() < 1e-2
    selection = drop_in.msa_topk_select(
        scores, 3, torch.full((6,), 8, dtype=torch.int32), force_end_blocks=1
    )
    assert np.array_equal(
        selection.numpy(), reference.topk_select(scores.numpy(), 3, [8] * 6, 0, 1)
    )
    assert np.array_equal(
        drop_in.msa_topk_select(scores, 3, 5).numpy(),
        reference.topk_select(scores.numpy(), 3, [5] * 6),
    )


# What the caller finds in vLLM, as far as it looks.


class KVCacheLayout(enum.Enum):
    LBHNC = "LBHNC"


class MiniMaxM3SparseBackend:
    @classmethod
    def supported_kv_cache_layouts(cls):
        return None


class MiniMaxM3SparseImpl:
    def __init__(self, step):
        self.num_heads, self.head_size, self.scale = step.hq, DIM, step.scale
        self.use_fp8_kv, self.kv_cache_fp8_dtype = step.dtype == "e4m3", torch.float8_e4m3fn


@dataclasses.dataclass
class Part:
    """Decode's or prefill's share of the metadata."""

    block_table: torch.Tensor
    seq_lens: torch.Tensor
    decode_query_len: int = 0
    cu_seqlens_q: object = None
    max_seq_len: int = 0


@dataclasses.dataclass
class MiniMaxM3SparseMetadata:
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    decode: object
    prefill: object


def caller_classes(text, names):
    """The classes of the caller: of Python source as it is, or cut out of a page that shows them
    after "Source code in …".
    """
    if "Source code in" in text:
        found = re.findall(r"^Source code in [^\n]*\n(class .*?)(?=^\S|\Z)", text, re.M | re.S)
        # A class ends where the page's own text goes on, in the first column.
        source = "\n\n".join(found)
        exec(compile(source, "caller", "exec"), names)  # noqa: S102
        return names
    modules = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in (
            "vllm",
            "flashinfer",
        ):
            module = modules.setdefault(node.module, types.ModuleType(node.module))
            for alias in node.names:
                if node.module == "flashinfer.msa_ops":
                    setattr(module, alias.name, getattr(drop_in, alias.name))
                elif alias.name in names:
                    setattr(module, alias.name, names[alias.name])
                else:
                    pytest.fail(
                        f"the caller imports {alias.name} of {node.module}, which this test does "
                        "not have"
                    )
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            for i in range(1, name.count(".") + 1):  # its packages
                parent = ".".join(name.split(".")[:i])
                patch.setitem(sys.modules, parent, modules.get(parent, types.ModuleType(parent)))
            patch.setitem(sys.modules, name, module)
        namespace = {"__name__": "caller"}
        exec(compile(text, "caller", "exec"), namespace)  # noqa: S102
    return namespace


CALLER = os.environ.get("MSA_FLASHINFER_CALLER")


@pytest.mark.skipif(
    not CALLER, reason="MSA_FLASHINFER_CALLER does not name vLLM's sparse_attention_flashinfer.py"
)
@pytest.mark.parametrize("sm90", [True, False], ids=["sm90", "sm120"])
@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_the_caller_runs_unchanged(dtype, sm90):
    step = Step(dtype)
    nd = step.decode_tokens
    context = types.SimpleNamespace(attn_metadata=None)
    names = {
        "torch": torch,
        "msa_sparse_attention": drop_in.msa_sparse_attention,
        "msa_sparse_decode_attention": drop_in.msa_sparse_decode_attention,
        "get_forward_context": lambda: context,
        "AttentionLayer": object,
        "KVCacheLayout": KVCacheLayout,
        "MiniMaxM3SparseBackend": MiniMaxM3SparseBackend,
        "MiniMaxM3SparseImpl": MiniMaxM3SparseImpl,
        "MiniMaxM3SparseMetadata": MiniMaxM3SparseMetadata,
        "SPARSE_BLOCK_SIZE": PAGE,
        "cdiv": lambda a, b: -(-a // b),
        "_IS_SM90": sm90,
        "_out_kwargs": (lambda dst: {"out": dst}) if sm90 else (lambda dst: {}),
    }
    classes = caller_classes(pathlib.Path(CALLER).read_text(), names)
    impl = classes["MiniMaxM3SparseFlashInferImpl"](step)
    if "MiniMaxM3SparseFlashInferBackend" in classes:
        layouts = classes["MiniMaxM3SparseFlashInferBackend"].supported_kv_cache_layouts()
        assert layouts == ((KVCacheLayout.LBHNC,) if sm90 else None)
    layer = types.SimpleNamespace(
        layer_name="layers.3.attn",
        topk_indices_buffer=torch.from_numpy(step.selection),
        _k_scale_float=0.5,
        _v_scale_float=2.0,
    )
    cache = torch.from_numpy(step.cache_bits) if dtype == "e4m3" else tensor(step.cache_bits, dtype)
    query = tensor(step.query_bits, "bf16")
    output = torch.full_like(query, 7.0)
    assert impl.forward(layer, query, cache, output) is output and bool(
        (output == 7).all()
    )  # profiling run
    table, lengths = torch.from_numpy(step.table), torch.from_numpy(step.lengths)
    context.attn_metadata = {
        layer.layer_name: MiniMaxM3SparseMetadata(
            step.tokens,
            step.decodes,
            nd,
            2,
            Part(table[:3], lengths[:3], decode_query_len=step.m),
            Part(
                table[3:],
                lengths[3:],
                cu_seqlens_q=torch.from_numpy(step.starts[3:] - nd),
                max_seq_len=400,
            ),
        )
    }
    assert impl.forward(layer, query, cache, output) is output
    scales = {"k_scale": 0.5, "v_scale": 2.0} if dtype == "e4m3" else {}
    expected = step.expected(**scales)[0]
    actual = numbers(output)
    assert np.abs(actual[: step.tokens].reshape(expected.shape) - expected).max() < 2e-2 * max(
        1.0, np.abs(expected).max()
    )
    assert (actual[step.tokens :] == 7).all()
    assert msa_cpp.last_backend()


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@needs_cuda
@pytest.mark.parametrize("dtype", ["bf16", "e4m3"])
def test_on_a_device(dtype):
    """Both calls against numpy, on halves of one cache and a view of the selection."""
    step = Step(dtype, hq=16, hkv=1)
    nd = step.decode_tokens
    k, v = tensor(step.cache_bits, dtype).cuda().split(DIM, dim=-1)
    query = tensor(step.query_bits, "bf16").cuda()[: step.tokens].view(-1, step.hq, DIM)
    selection = torch.from_numpy(step.selection).cuda().transpose(0, 1)
    table, lengths = torch.from_numpy(step.table).cuda(), torch.from_numpy(step.lengths).cuda()
    expected, expected_lse = step.expected()
    paged = {"page_table": table[:3], "seqused_k": lengths[:3]}
    out, lse = drop_in.msa_sparse_decode_attention(
        query[:nd], k, v, selection[:, :nd], seqlen_q=2, return_softmax_lse=True, **paged
    )
    assert np.abs(numbers(out.cpu()) - expected[:nd]).max() < 1.7e-2
    assert np.abs(numbers(lse.cpu()) - expected_lse[:nd]).max() < 2e-4
    starts = torch.from_numpy(step.starts[3:] - nd).cuda()
    paged = {"page_table": table[3:], "seqused_k": lengths[3:]}
    out = drop_in.msa_sparse_attention(
        query[nd:], k, v, selection[:, nd : step.tokens], starts, causal=True, **paged
    )
    assert np.abs(numbers(out.cpu()) - expected[nd:]).max() < 1.7e-2


@needs_cuda
def test_scores_choice_and_attention_in_one_graph():
    """Captured with what the calls make themselves; a replay reads what arrays hold by then."""
    rng = np.random.default_rng(6)
    pages = 40
    keys = tensor(reference.random_bits(rng, (pages, 1, PAGE, DIM), "bf16"), "bf16").cuda()
    cache = tensor(reference.random_bits(rng, (pages, 1, PAGE, 2 * DIM), "bf16"), "bf16").cuda()
    k, v = cache.split(DIM, dim=-1)
    table = torch.from_numpy(rng.permutation(pages)[None].astype(np.int32)).cuda()
    lengths = torch.tensor([3000], dtype=torch.int32, device="cuda")
    valid = torch.tensor([24], dtype=torch.int32, device="cuda")
    starts = torch.tensor([0, 1], dtype=torch.int32, device="cuda")
    q = torch.empty(1, 16, DIM, dtype=torch.bfloat16, device="cuda")
    workspace = drop_in.MSASparseAttentionWorkspace("cuda")

    def step():
        paged = {"page_table": table, "seqused_k": lengths}
        scores = drop_in.msa_proxy_score(
            q[:, :1], keys, starts, max_seqlen_q=1, max_k_tiles=pages, **paged
        )
        selection = drop_in.msa_topk_select(scores, TOPK, valid, force_end_blocks=1)
        out = drop_in.msa_sparse_decode_attention(
            q, k, v, selection.transpose(0, 1), workspace=workspace, **paged
        )
        return selection, out

    def fill(seed, keys_of_request):
        bits = reference.random_bits(np.random.default_rng(seed), (1, 16, DIM), "bf16")
        q.copy_(tensor(bits, "bf16"))
        lengths.fill_(keys_of_request)
        valid.fill_(-(-keys_of_request // PAGE))

    fill(1, 3000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed, keys_of_request in ((2, 3000), (3, 129), (4, 5000)):
        fill(seed, keys_of_request)
        eager = [t.clone() for t in step()]
        graph.replay()
        torch.cuda.synchronize()
        for mine, its in zip(eager, captured, strict=True):
            assert torch.equal(mine, its)
        assert int((captured[0] >= 0).sum()) == min(TOPK, -(-keys_of_request // PAGE))
