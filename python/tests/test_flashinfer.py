# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""msa_cpp.flashinfer against numpy: what FlashInfer's SM90 kernels serve, and what they refuse.
Needs numpy alone.
"""

import inspect
import json
import pathlib
import subprocess
import sys

import flashinfer_reference as reference
import msa_cpp
import msa_cpp.flashinfer as drop_in
import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = json.loads((HERE / "data/flashinfer_msa_ops.json").read_text())
PAGE = DIM = 128
# Contract section 9: bf16 and f16 outputs of unit-variance inputs, log-sum-exp, scores.
OUT_TOLERANCE, LSE_TOLERANCE, SCORE_TOLERANCE = 1.7e-2, 2e-4, 1e-2


class Problem:
    """A batch in a paged cache: requests of `lengths` keys and `queries` tokens, K and V as f64 and
    as the library takes them.
    """

    def __init__(self, lengths, queries, *, hq=8, hkv=2, topk=3, dtype="bf16", packed=True, seed=0):
        rng = np.random.default_rng(seed)
        self.lengths = np.array(lengths, np.int32)
        self.starts = np.concatenate([[0], np.cumsum(queries)]).astype(np.int32)
        self.tokens, self.hq, self.hkv, self.dtype = int(self.starts[-1]), hq, hkv, dtype
        blocks = [-(-n // PAGE) for n in lengths]
        pages = sum(blocks) + 1
        self.width = max(blocks) + 2
        # Page 0 and what lies behind a request's last page must not matter.
        self.table = np.full((len(lengths), self.width), 2**31 - 1, np.int32)
        free = list(rng.permutation(np.arange(1, pages)))
        for r, count in enumerate(blocks):
            self.table[r, :count] = [free.pop() for _ in range(count)]
        cache = reference.random_bits(rng, (pages, hkv, PAGE, 2 * DIM), dtype)
        cache[0] = reference.NAN[dtype]
        for r, n in enumerate(lengths):
            if n % PAGE:
                cache[self.table[r, n // PAGE], :, n % PAGE :] = reference.NAN[dtype]
        k, v = cache[..., :DIM], cache[..., DIM:]
        if not packed:
            k, v = (
                np.ascontiguousarray(k),
                np.ascontiguousarray(v.swapaxes(1, 2)).swapaxes(1, 2),
            )  # head-major, token-major
        self.k_bits, self.v_bits = k, v
        self.k, self.v = msa_cpp.view(k, dtype), msa_cpp.view(v, dtype)
        self.k_values, self.v_values = reference.values(k, dtype), reference.values(v, dtype)
        self.q_bits = reference.random_bits(rng, (self.tokens, hq, DIM), "bf16")
        self.q = msa_cpp.view(self.q_bits, "bf16")
        self.q_values = reference.values(self.q_bits, "bf16")
        self.selection = np.full((self.tokens, hkv, topk), -1, np.int32)
        for t, (r, position) in enumerate(reference.positions(self.starts, lengths)):
            valid = position // PAGE + 1
            for h in range(hkv):
                ids = rng.permutation(valid)[:topk]
                self.selection[t, h, : len(ids)] = ids

    @property
    def head_major(self):
        """The token-major selection as FlashInfer's argument: a view, which FlashInfer itself
        refuses.
        """
        return self.selection.swapaxes(0, 1)

    def expected(self, **options):
        return reference.attention(
            self.q_values,
            self.k_values,
            self.v_values,
            self.head_major,
            self.starts,
            self.table,
            self.lengths,
            **options,
        )

    def out(self):
        """A buffer full of NaN, and the library's view of it."""
        bits = np.full((self.tokens, self.hq, DIM), 0x7FC0, np.uint16)
        return bits, msa_cpp.view(bits, "bf16")

    def prefill(self, **options):
        bits, out = self.out()
        options = {
            "causal": True,
            "page_table": self.table,
            "seqused_k": self.lengths,
            "out": out,
            **options,
        }
        selection = options.pop("selection", self.head_major)
        result = drop_in.msa_sparse_attention(
            self.q, self.k, self.v, selection, self.starts, **options
        )
        assert (result[0] if isinstance(result, tuple) else result) is out
        return (reference.values(bits, "bf16"), *(result[1:] if isinstance(result, tuple) else ()))

    def decode(self, seqlen_q, **options):
        bits, out = self.out()
        options = {
            "page_table": self.table,
            "seqused_k": self.lengths,
            "seqlen_q": seqlen_q,
            "out": out,
            **options,
        }
        selection = options.pop("selection", self.head_major)
        result = drop_in.msa_sparse_decode_attention(self.q, self.k, self.v, selection, **options)
        assert (result[0] if isinstance(result, tuple) else result) is out
        return (reference.values(bits, "bf16"), *(result[1:] if isinstance(result, tuple) else ()))


def assert_near(actual, expected, tolerance):
    actual = np.asarray(actual, np.float64)
    assert np.array_equal(np.isneginf(actual), np.isneginf(expected))
    finite = np.isfinite(expected)
    assert np.abs(actual[finite] - expected[finite]).max() <= tolerance
    assert np.isfinite(actual[finite]).all()


RAGGED = {"lengths": [300, 517, 5], "queries": [40, 130, 5]}
UNIFORM = {"lengths": [300, 129, 700, 3], "queries": [3, 3, 3, 3]}


@pytest.mark.parametrize("name", sorted(RECORDED["signatures"]))
def test_signature_takes_what_flashinfers_takes(name):
    served = getattr(drop_in, name, None)
    if served is None:
        assert name not in drop_in.__all__
        return
    ours = list(inspect.signature(served).parameters.values())
    kinds = {
        "positional_or_keyword": inspect.Parameter.POSITIONAL_OR_KEYWORD,
        "keyword_only": inspect.Parameter.KEYWORD_ONLY,
    }
    theirs = RECORDED["signatures"][name]
    for mine, recorded in zip(ours, theirs):
        assert mine.name == recorded["name"]
        assert mine.kind == kinds[recorded["kind"]]
        assert (mine.default is inspect.Parameter.empty) == ("default" not in recorded)
        if "default" in recorded:
            assert mine.default == recorded["default"]
    assert len(ours) >= len(theirs)
    for extra in ours[len(theirs) :]:
        assert extra.kind == inspect.Parameter.KEYWORD_ONLY and extra.default is None


def test_what_is_not_served_is_in_the_migration_table():
    page = (HERE.parent.parent / "docs/migration-flashinfer.md").read_text()
    assert RECORDED["version"] in page
    for name in RECORDED["public"]:
        assert f"`{name}`" in page, name
    assert set(drop_in.__all__) <= set(RECORDED["public"])


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "apart"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3", "e5m2"])
def test_prefill(dtype, packed):
    problem = Problem(**RAGGED, dtype=dtype, packed=packed)
    out, lse = problem.prefill(return_softmax_lse=True)
    expected_out, expected_lse = problem.expected()
    assert_near(out, expected_out, OUT_TOLERANCE)
    assert_near(lse, expected_lse, LSE_TOLERANCE)
    assert np.array_equal(problem.prefill()[0], out)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "apart"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3", "e5m2"])
def test_decode(dtype, packed):
    problem = Problem(**UNIFORM, dtype=dtype, packed=packed)
    out, lse = problem.decode(3, return_softmax_lse=True)
    expected_out, expected_lse = problem.expected()
    assert_near(out, expected_out, OUT_TOLERANCE)
    assert_near(lse, expected_lse, LSE_TOLERANCE)
    assert np.array_equal(problem.decode(3)[0], out)


def test_decode_of_more_tokens_than_the_decode_kernels_take():
    problem = Problem(lengths=[300, 20], queries=[20, 20])
    assert_near(problem.decode(20)[0], problem.expected()[0], OUT_TOLERANCE)


def test_selection_views_give_the_bits_of_a_contiguous_copy():
    problem = Problem(**RAGGED)
    copied = np.ascontiguousarray(problem.head_major)
    assert not problem.head_major.flags.c_contiguous
    assert np.array_equal(problem.prefill(selection=copied)[0], problem.prefill()[0])
    problem = Problem(**UNIFORM)
    assert np.array_equal(
        problem.decode(3, selection=np.ascontiguousarray(problem.head_major))[0],
        problem.decode(3)[0],
    )


def test_one_list_for_all_heads():
    problem = Problem(**RAGGED)
    problem.selection[:, 1:] = problem.selection[:, :1]
    assert np.array_equal(
        problem.prefill(selection=problem.head_major[:1])[0], problem.prefill()[0]
    )


@pytest.mark.parametrize("topk", [1, 5, 16, 64])
def test_topk(topk):
    problem = Problem(lengths=[2300, 260], queries=[4, 4], topk=topk)
    expected = problem.expected()[0]
    assert_near(problem.decode(4)[0], expected, OUT_TOLERANCE)
    assert_near(problem.prefill()[0], expected, OUT_TOLERANCE)


def test_not_causal():
    problem = Problem(**RAGGED)
    expected = problem.expected(causal=False)[0]
    assert_near(problem.prefill(causal=False)[0], expected, OUT_TOLERANCE)
    assert np.abs(expected - problem.expected()[0]).max() > 10 * OUT_TOLERANCE
    problem = Problem(**UNIFORM)
    assert_near(
        problem.decode(3, causal=False)[0], problem.expected(causal=False)[0], OUT_TOLERANCE
    )


def test_prefill_is_not_causal_by_default():
    problem = Problem(**RAGGED)
    bits, out = problem.out()
    drop_in.msa_sparse_attention(
        problem.q,
        problem.k,
        problem.v,
        problem.head_major,
        problem.starts,
        page_table=problem.table,
        seqused_k=problem.lengths,
        out=out,
    )
    assert np.array_equal(reference.values(bits, "bf16"), problem.prefill(causal=False)[0])


@pytest.mark.parametrize("call", ["prefill", "decode"])
def test_scales(call):
    problem = Problem(**UNIFORM, dtype="e4m3")
    run = problem.prefill if call == "prefill" else lambda **options: problem.decode(3, **options)
    expected = problem.expected(scale=DIM**-0.5 * 0.25, v_scale=0.5)[0]
    assert_near(run(softmax_scale=DIM**-0.5 * 0.25, v_global_scale=0.5)[0], expected, 2e-2)
    assert_near(run(k_global_scale=0.25, v_global_scale=0.5)[0], expected, 2e-2)
    one = {"k_scale": np.array([0.25], np.float32), "v_scale": np.array([0.5], np.float32)}
    assert_near(run(**one)[0], expected, 2e-2)
    unscaled = problem.expected()[0]
    assert np.linalg.norm(unscaled - expected) > 0.2 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    "offset", [0, 77, np.array([250, 520, 1], np.int32)], ids=["0", "77", "each"]
)
def test_q_offset(offset):
    problem = Problem(**RAGGED, topk=6)
    problem.selection[:] = np.arange(6)
    assert_near(
        problem.prefill(q_offset=offset)[0], problem.expected(q_offset=offset)[0], OUT_TOLERANCE
    )
    problem = Problem(lengths=[300, 517, 5], queries=[2, 2, 2], topk=6)
    problem.selection[:] = np.arange(6)
    assert_near(
        problem.decode(2, q_offset=offset)[0], problem.expected(q_offset=offset)[0], OUT_TOLERANCE
    )


def test_temperature_lse():
    problem = Problem(**RAGGED)
    out, lse, cool = problem.prefill(return_temperature_lse=True, lse_temperature_scale=0.5)
    expected_out, expected_lse = problem.expected()
    assert_near(out, expected_out, OUT_TOLERANCE)
    assert_near(lse, expected_lse, LSE_TOLERANCE)
    assert_near(cool, problem.expected(scale=DIM**-0.5 * 0.5)[1], LSE_TOLERANCE)


def test_outputs_made_by_the_call():
    """f16 queries, which numpy has a type for."""
    problem = Problem(**UNIFORM, dtype="f16")
    q = problem.q_values.astype(np.float16)
    k, v = problem.k_bits.view(np.float16), problem.v_bits.view(np.float16)
    paged = {"page_table": problem.table, "seqused_k": problem.lengths}
    decoded, lse = drop_in.msa_sparse_decode_attention(
        q, k, v, problem.head_major, seqlen_q=3, return_softmax_lse=True, **paged
    )
    prefilled = drop_in.msa_sparse_attention(
        q, k, v, problem.head_major, problem.starts, causal=True, **paged
    )
    assert (
        decoded.dtype == prefilled.dtype == np.float16
        and lse.dtype == np.float32
        and lse.shape == q.shape[:2]
    )
    problem.q_values = q.astype(np.float64)
    expected_out, expected_lse = problem.expected()
    assert_near(decoded, expected_out, OUT_TOLERANCE)
    assert_near(prefilled, expected_out, OUT_TOLERANCE)
    assert_near(lse, expected_lse, LSE_TOLERANCE)


def test_rows_without_a_block_are_zero():
    problem = Problem(**UNIFORM)
    problem.selection[1] = -1
    for out, lse in (
        problem.decode(3, return_softmax_lse=True),
        problem.prefill(return_softmax_lse=True),
    ):
        assert np.all(out[1] == 0) and np.all(np.isneginf(lse[1]))


class IndexProblem:
    """Index queries and a paged cache of index keys."""

    def __init__(
        self, lengths, queries, *, heads=4, key_heads=1, dtype="bf16", q_dtype="bf16", seed=1
    ):
        plain = Problem(lengths, queries, hq=heads, hkv=key_heads, dtype=dtype, seed=seed)
        self.lengths, self.starts, self.table = plain.lengths, plain.starts, plain.table
        # numpy's own arrays can be cut into heads, bytes of index keys are e4m3; a view of one head
        # comes without the dimension.
        self.k = plain.k_bits if key_heads > 1 else msa_cpp.view(plain.k_bits[:, 0], dtype)
        self.k_bits, self.k_values = plain.k_bits, plain.k_values
        bits = reference.random_bits(
            np.random.default_rng(seed), (plain.tokens, heads, DIM), q_dtype
        )
        self.q = bits.view(np.float16) if q_dtype == "f16" else msa_cpp.view(bits, q_dtype)
        self.q_values = reference.values(bits, q_dtype)
        self.blocks = max(-(-n // PAGE) for n in lengths)

    def expected(self, blocks=None, **options):
        return reference.proxy_score(
            self.q_values,
            self.k_values,
            self.starts,
            self.table,
            self.lengths,
            self.blocks if blocks is None else blocks,
            **options,
        )

    def score(self, **options):
        return drop_in.msa_proxy_score(
            self.q, self.k, self.starts, page_table=self.table, seqused_k=self.lengths, **options
        )


@pytest.mark.parametrize(
    "dtypes", [("bf16", "bf16"), ("bf16", "e4m3"), ("e4m3", "e4m3")], ids="-".join
)
@pytest.mark.parametrize("shape", [RAGGED, UNIFORM], ids=["prefill", "decode"])
def test_proxy_score(shape, dtypes):
    problem = IndexProblem(**shape, q_dtype=dtypes[0], dtype=dtypes[1])
    longest = max(shape["queries"])
    scores = problem.score(max_seqlen_q=longest)
    assert scores.dtype == np.float32 and scores.shape == (
        4,
        problem.blocks,
        int(problem.starts[-1]),
    )
    assert_near(scores, problem.expected(), SCORE_TOLERANCE)
    assert_near(problem.score(), problem.expected(), SCORE_TOLERANCE)


def test_proxy_score_of_several_key_heads():
    problem = IndexProblem(**RAGGED, key_heads=2, dtype="e4m3", q_dtype="f16")
    assert_near(problem.score(), problem.expected(), SCORE_TOLERANCE)
    one = IndexProblem(**RAGGED, dtype="e4m3", q_dtype="f16")
    expected = one.score()
    one.k = one.k_bits[:, :1]
    assert np.array_equal(one.score(), expected)


def test_proxy_score_not_causal_and_offset():
    problem = IndexProblem(**RAGGED)
    everything = problem.expected(causal=False)
    assert_near(problem.score(causal=False), everything, SCORE_TOLERANCE)
    assert np.isneginf(problem.expected()).sum() > np.isneginf(everything).sum()
    assert_near(problem.score(q_offset=100), problem.expected(q_offset=100), SCORE_TOLERANCE)
    uniform = IndexProblem(**UNIFORM)
    assert_near(
        uniform.score(causal=False, max_seqlen_q=3), uniform.expected(causal=False), SCORE_TOLERANCE
    )


def test_proxy_score_into_a_buffer():
    problem = IndexProblem(**RAGGED)
    tokens = int(problem.starts[-1])
    output = np.full((4, 7, tokens), np.nan, np.float32)
    assert problem.score(output=output) is output
    assert_near(output, problem.expected(blocks=7), SCORE_TOLERANCE)
    assert_near(problem.score(max_k_tiles=2), problem.expected(blocks=2), SCORE_TOLERANCE)
    reduced = np.full((1, 7, tokens), np.nan, np.float32)
    assert problem.score(output=reduced, reduce_heads=True) is reduced
    assert np.array_equal(reduced, output.max(axis=0, keepdims=True))
    assert np.array_equal(
        problem.score(reduce_heads=True), problem.score().max(axis=0, keepdims=True)
    )


@pytest.mark.parametrize("topk", [1, 4, 16])
@pytest.mark.parametrize("forced", [(0, 0), (0, 1), (1, 2)], ids=str)
def test_topk_select(topk, forced):
    rng = np.random.default_rng(3)
    scores = rng.integers(-9, 9, (2, 20, 33)).astype(np.float32)  # ties
    valid = rng.integers(0, 25, 33).astype(np.int32)
    if sum(forced) > topk:
        forced = (0, topk)
    selection = drop_in.msa_topk_select(scores, topk, valid, None, *forced)
    assert selection.dtype == np.int32
    assert np.array_equal(
        selection, reference.topk_select(scores, topk, np.minimum(valid, 20), *forced)
    )
    output = np.full((33, 2, topk), 99, np.int32)
    assert drop_in.msa_topk_select(scores, topk, output=output, force_end_blocks=1) is output
    assert np.array_equal(output, reference.topk_select(scores, topk, [20] * 33, 0, 1))
    assert np.array_equal(
        drop_in.msa_topk_select(scores, topk, 7), reference.topk_select(scores, topk, [7] * 33)
    )


def test_score_select_attend():
    """The three stages in the order in which an engine calls them, no array turned or copied
    between them.
    """
    problem = Problem(lengths=[900, 400], queries=[2, 2], hq=8, hkv=2, topk=4)
    index = IndexProblem([900, 400], [2, 2], heads=2)
    scores = index.score(max_seqlen_q=2)
    valid = np.array(
        [p // PAGE + 1 for _, p in reference.positions(index.starts, index.lengths)], np.int32
    )
    problem.selection = drop_in.msa_topk_select(scores, 4, valid, force_end_blocks=1)
    assert np.array_equal(problem.selection, reference.topk_select(scores, 4, valid, 0, 1))
    assert_near(problem.decode(2)[0], problem.expected()[0], OUT_TOLERANCE)


def test_hints_and_the_workspace_class_change_nothing():
    problem = Problem(**UNIFORM)
    workspace = drop_in.MSASparseAttentionWorkspace("cuda")
    expected = problem.decode(3)[0]
    assert np.array_equal(
        problem.decode(3, workspace=workspace, force_fused=True, partial_dtype=np.float16)[0],
        expected,
    )
    assert drop_in.SUPPORTS_PACKED_KV and drop_in.supports_packed_kv("cuda:0")


def refused(call, *words):
    with pytest.raises(msa_cpp.Error) as error:
        call()
    assert isinstance(error.value, ValueError)
    for word in words:
        assert word in str(error.value)


def test_refusals_name_every_argument():
    problem = Problem(**UNIFORM)
    before = problem.out()[0]
    refused(
        lambda: problem.decode(
            3, page_table=None, seqused_k=None, k_scale=np.zeros((4, 8), np.float32)
        ),
        "'page_table' is None",
        "'seqused_k' is None",
        "'k_scale' has shape [4, 8]",
        "NVFP4",
    )
    flat = {"page_table": None, "cu_seqlens_k": problem.starts}
    refused(lambda: problem.prefill(**flat), "'page_table' is None", "'cu_seqlens_k' is given")
    refused(
        lambda: problem.prefill(v_scale=np.ones(1, np.float32), v_global_scale=2.0),
        "'v_global_scale' is 2.0",
    )
    refused(lambda: problem.decode(0), "'seqlen_q' is 0")
    refused(lambda: problem.decode(5), "'q' has 12 rows", "5 = 20")
    refused(
        lambda: problem.prefill(selection=problem.selection),
        "'q2k_indices' has shape [12, 2, 3]",
        ".transpose(0, 1)",
    )
    refused(lambda: problem.prefill(causal=True, softmax_scale=float("nan")), "softmax_scale")
    bits, out = problem.out()
    with pytest.raises(msa_cpp.Error):
        problem.prefill(out=out, page_table=problem.table.astype(np.int64))
    assert np.array_equal(bits, before)


def test_refusals_of_scores():
    problem = IndexProblem(**RAGGED)
    problem.q = np.zeros((175, 3, DIM), np.float16)
    problem.k = np.zeros((9, 2, PAGE, DIM), np.uint8)
    refused(problem.score, "'k' has 2 heads; allowed: a divisor of q's 3")
    problem.q, problem.k = problem.q[:, :2], msa_cpp.view(problem.k, "e4m3")
    refused(problem.score, "'k' is a view that cannot be cut into heads")
    problem = IndexProblem(**RAGGED)
    refused(
        lambda: problem.score(output=np.zeros((2, 5, 175), np.float32)),
        "'output' has 2 heads; allowed: 4",
    )
    refused(
        lambda: problem.score(output=np.zeros((4, 5, 175), np.float32), max_k_tiles=6),
        "'output' has 5 blocks",
    )
    scores = np.zeros((1, 4, 2), np.float32)
    refused(
        lambda: drop_in.msa_topk_select(scores, 16, 5), "'num_valid_pages' is 5; allowed: 1 to 4"
    )
    refused(lambda: drop_in.msa_topk_select(scores, 65), "topk")


COPIES = """
import resource, sys
import numpy as np
import msa_cpp.flashinfer as drop_in

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def calls(pages):
    cache = np.full((pages, 2, 128, 256), 0.5, np.float16)
    keys = np.full((pages, 2, 128, 256), 0x38, np.uint8)[..., :128]  # e4m3, with gaps
    table = np.arange(pages, dtype=np.int32)[None]
    lengths, starts = np.array([pages * 128], np.int32), np.array([0, 2], np.int32)
    q = np.ones((2, 8, 128), np.float16)
    selection = np.zeros((2, 2, 16), np.int32)
    out, lse = np.empty_like(q), np.empty((2, 8), np.float32)
    scores = np.empty((8, pages, 2), np.float32)
    paged = {"page_table": table, "seqused_k": lengths}
    before = peak()
    k, v = cache[..., :128], cache[..., 128:]
    results = {"out": out, "lse_out": lse, "return_softmax_lse": True}
    head_major = selection.swapaxes(0, 1)
    drop_in.msa_sparse_decode_attention(q, k, v, head_major, seqlen_q=2, **results, **paged)
    drop_in.msa_sparse_attention(q, k, v, head_major, starts, **results, **paged)
    drop_in.msa_proxy_score(q, keys, starts, max_seqlen_q=2, output=scores, **paged)
    return peak() - before

calls(16)  # the library, its threads and its workspace
print(calls(1024))
"""


def test_nothing_is_copied():
    """Strided halves of a cache of 128 MB, keys with gaps in 64 MB: none of it is there twice."""
    done = subprocess.run(
        [sys.executable, "-c", COPIES], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16 << 20


RECORDER = HERE.parent.parent / "tools/record_flashinfer_signatures"


def test_the_recorder(tmp_path):
    package = tmp_path / "flashinfer"
    (package / "msa_ops").mkdir(parents=True)
    (package / "_build_meta.py").write_text('__version__ = "9.8"\n')
    (package / "msa_ops/__init__.py").write_text('__all__ = ["MADE", "Thing", "call"]\nMADE = 1\n')
    (package / "msa_ops/parts.py").write_text(
        "def call(a, /, b, c=3, *, d=None, e=1 << 4): ...\n"
        "class Thing:\n    def __init__(self, size: int = 2): ...\n"
        "def other(x): ...\n"
    )
    out = tmp_path / "record.json"
    command = [sys.executable, RECORDER, tmp_path, "--out", out]
    subprocess.run(command, check=True, capture_output=True)
    record = json.loads(out.read_text())
    assert record["version"] == "9.8" and record["public"] == ["MADE", "Thing", "call"]
    assert record["signatures"] == {
        "Thing": [{"name": "size", "kind": "positional_or_keyword", "default": 2}],
        "call": [
            {"name": "a", "kind": "positional_only"},
            {"name": "b", "kind": "positional_or_keyword"},
            {"name": "c", "kind": "positional_or_keyword", "default": 3},
            {"name": "d", "kind": "keyword_only", "default": None},
            {"name": "e", "kind": "keyword_only", "default_expression": "1 << 4"},
        ],
    }
    empty = subprocess.run([*command[:2], tmp_path / "flashinfer"], capture_output=True)
    assert empty.returncode == 2 and b"has no flashinfer/msa_ops/" in empty.stderr
