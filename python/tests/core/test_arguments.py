# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Arguments that are odd but right, and what is said of those that are wrong: the argument by the
name that the caller gave it, its value, and what is allowed; never another exception, and never a
result.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import pickle
from types import SimpleNamespace

import msa_cpp
import numpy as np
import pytest

TOKENS, HEADS, KV_HEADS, PAGES = 2, 4, 2, 4


@pytest.fixture
def calls():
    """Right arguments of each operator, to be exchanged one by one."""
    rng = np.random.default_rng(0)
    kv = rng.standard_normal((PAGES, KV_HEADS, 128, 256)).astype(np.float16)
    q = rng.standard_normal((TOKENS, HEADS, 128)).astype(np.float16)
    selection = np.array([[[0, 1]] * KV_HEADS] * TOKENS, np.int32)
    lengths, table = np.full(TOKENS, 200, np.int32), np.array([[1, 2]] * TOKENS, np.int32)
    batch = msa_cpp.BatchMetadata(lengths, table)
    index_q = rng.standard_normal((TOKENS, KV_HEADS, 128)).astype(np.float16)
    index_cache = np.zeros((PAGES, 128, 128), np.uint8)
    out, lse = np.zeros((TOKENS, HEADS, 128), np.float16), np.zeros((TOKENS, HEADS), np.float32)
    norms = ("q_norm", "k_norm", "index_q_norm", "index_k_norm")
    written = dict(
        qkv=np.zeros((TOKENS, (HEADS + 2 * KV_HEADS + KV_HEADS + 1) * 128), np.float16),
        positions=np.zeros(TOKENS, np.int64), cos_sin=np.zeros((4, 64), np.float32),
        **{name: np.zeros(128, np.float32) for name in norms},
        slot_mapping=np.arange(TOKENS), index_slot_mapping=np.arange(TOKENS), kv_cache=kv,
        q_out=np.zeros((TOKENS, HEADS, 128), np.float16),
        index_q_out=np.zeros((TOKENS, KV_HEADS, 128), np.float16), index_cache=index_cache)
    return SimpleNamespace(
        lengths=lengths, table=table,
        attend=dict(q=q, kv_cache=kv, selection=selection, batch=batch),
        index_blocks=dict(index_q=index_q, index_cache=index_cache, batch=batch),
        index_scores=dict(index_q=index_q, index_cache=index_cache, batch=batch),
        select_blocks=dict(scores=np.zeros((KV_HEADS, 3, TOKENS), np.float32),
                           valid_blocks=np.full(TOKENS, 3, np.int32)),
        merge_states=dict(out_a=out, lse_a=lse, out_b=out.copy(), lse_b=lse.copy()),
        copy_pages=dict(src=kv, dst=kv.copy(), pairs=np.array([[0, 1]])),
        insert_cache=dict(k=np.zeros((TOKENS, KV_HEADS, 128), np.float16),
                          v=np.zeros((TOKENS, KV_HEADS, 128), np.float16),
                          slot_mapping=np.arange(TOKENS), kv_cache=kv.copy()),
        write_cache=written,
        layer_step=dict(written, batch=batch),
        attend_workspace_size=dict(q=q, kv_cache=kv, selection=selection, batch=batch),
        index_blocks_workspace_size=dict(index_q=index_q, index_cache=index_cache, batch=batch,
                                         out=selection),
        index_scores_workspace_size=dict(index_q=index_q, index_cache=index_cache, batch=batch,
                                         out=np.zeros((KV_HEADS, 2, TOKENS), np.float32)),
        view=dict(array=q),
    )


def read_only(array):
    array.flags.writeable = False
    return array


F32 = np.zeros((2 * TOKENS, 3), np.float32)
F64, I64 = np.zeros((TOKENS, HEADS)), np.zeros((TOKENS, KV_HEADS, 2), np.int64)

# operator, the arguments that are wrong, and pieces of the message
WRONG = [
    ("attend", dict(q=None), ["'q' is missing; expected [T", "'out' is missing"]),
    ("attend", dict(q=[1, 2]), ["'q' is <list>; allowed: an array with __dlpack__"]),
    ("attend", dict(q=np.zeros((2, 4, 128), ">f2")),
     ["'q' is <numpy.ndarray of shape [2, 4, 128] and dtype >f2: ", "; allowed: an array"]),
    ("attend", dict(q=np.zeros((2, 4, 128), object)), ["'q' is <numpy.ndarray", "dtype object"]),
    ("attend", dict(q=np.zeros((2, 4, 128), complex)), ["'q' has dtype complex128; allowed: bf16"]),
    ("attend", dict(q=np.array(1, np.float16)), ["'q' has 0 dimensions; expected [T"]),
    ("attend", dict(q=np.zeros((1, 1, 1, 2, 4, 128), np.float16)), ["'q' has rank 6; allowed: 0 to"]),
    ("attend", dict(batch=None), ["'batch' is None; allowed: a msa_cpp.BatchMetadata"]),
    ("attend", dict(kv_cache=None), ["'kv_cache' is missing; expected [pages"]),
    ("attend", dict(kv_cache=(1, 2, 3)), ["'kv_cache' is a tuple of 3; allowed: one array, or a pair"]),
    ("attend", dict(kv_cache=np.zeros((4, 2, 128, 256), np.uint8)),
     ["'kv_cache' has dtype u8; allowed: bf16", "by kv_dtype or msa_cpp.view"]),
    ("attend", dict(kv_dtype="fp7"), ["'kv_dtype' is 'fp7'; allowed: None, 'auto'", "fp8_e5m2"]),
    ("attend", dict(kv_dtype=8), ["'kv_dtype' is 8; allowed: a text, or None"]),
    ("attend", dict(selection=I64), ["'selection' has dtype i64; allowed: i32"]),
    ("attend", dict(selection=np.zeros((2, 2, 2), np.int32)[::-1]), ["'selection' has the negative stride"]),
    ("attend", dict(lse_out=F64), ["'lse_out' has dtype float64; allowed: f32"]),
    ("attend", dict(lse_out=np.zeros(8, np.float32)), ["'lse_out' has 1 dimensions; expected [T"]),
    ("attend", dict(out=read_only(np.zeros((2, 4, 128), np.float16))),
     ["'out' is <numpy.ndarray of shape [2, 4, 128] and dtype float16: a read-only array>; allowed"]),
    ("attend", dict(kv_shard=None), ["'kv_shard' is None; allowed: a pair (rank, world)"]),
    ("attend", dict(kv_shard=(0, 1, 2)), ["'kv_shard' is (0, 1, 2); allowed: a pair"]),
    ("attend", dict(kv_shard=(2**32, 2**32 + 1)), ["'kv_shard.rank' is 4294967296; allowed"]),
    ("attend", dict(kv_shard=(0, 1.0)), ["'kv_shard.world' is 1.0; allowed: a whole number"]),
    ("attend", dict(k_scale="1"), ["'k_scale' is '1'; allowed: a number, or a tensor of one f32"]),
    ("attend", dict(k_scale=np.array([1.0])), ["'k_scale' is a tensor of dtype float64", "; allowed"]),
    ("attend", dict(v_scale=2**70), ["'v_scale' is <1180591620717411303424>; allowed: a number"]),
    ("attend", dict(softmax_scale=[1]), ["'softmax_scale' is <list>; allowed: a number"]),
    ("attend", dict(causal="yes"), ["'causal' is 'yes'; allowed: True or False"]),
    ("attend", dict(causal=2), ["'causal' is 2; allowed: True or False"]),
    ("attend", dict(invariant=0.5), ["'invariant' is 0.5; allowed: True or False"]),
    ("attend", dict(workspace=b"1"), ["'workspace' is <bytes>; allowed: an array"]),
    ("attend", dict(workspace=np.zeros(99, np.uint8)[::2]), ["'workspace' has gaps", "allowed: dense"]),
    ("attend", dict(workspace_cap=-1), ["'workspace_cap' is -1; allowed: 0 or more bytes"]),
    ("attend", dict(workspace_cap=1e6), ["'workspace_cap' is 1e+06; allowed: a whole number"]),
    ("attend", dict(stream="x"), ["'stream' is 'x'; allowed: a cudaStream_t as a number, or a stream"]),
    ("index_blocks", dict(index_q=None), ["'index_q' is missing; expected [T"]),
    ("index_blocks", dict(batch={}), ["'batch' is <dict>; allowed: a msa_cpp.BatchMetadata"]),
    ("index_blocks", dict(topk=-1), ["'topk' is -1; allowed: 1 to 64"]),
    ("index_blocks", dict(topk=None), ["'topk' is None; allowed: 1 to 64"]),
    ("index_blocks", dict(topk=2**40), ["'topk' is 1099511627776; allowed: 1 to 64"]),
    ("index_blocks", dict(out=I64), ["'out' has dtype i64; allowed: i32"]),
    ("index_blocks", dict(out=np.zeros((2, 2, 0), np.int32)), ["'out.topk' is 0; allowed: at least 1"]),
    ("index_blocks", dict(init_blocks=-1), ["'init_blocks' is -1; allowed: at least 0"]),
    ("index_scores", dict(index_q=None), ["'index_q' is missing; expected [T"]),
    ("index_scores", dict(blocks=-1), ["'blocks' is -1; allowed: 0 to"]),
    ("index_scores", dict(out=np.zeros((2, 2, 2))), ["'out' has dtype float64; allowed: f32"]),
    ("select_blocks", dict(scores=None), ["'scores' is missing; expected [Hi"]),
    ("select_blocks", dict(valid_blocks=None), ["'valid_blocks' is missing; expected [T"]),
    ("select_blocks", dict(valid_blocks=np.int32(3)), ["'valid_blocks' is 3; allowed: an array"]),
    ("select_blocks", dict(num_tokens=-1), ["'num_tokens' is -1; allowed: at least 0"]),
    ("select_blocks", dict(topk=65), ["'topk' is 65; allowed: 1 to 64"]),
    ("merge_states", dict(out_a=None), ["'out_a' is missing; expected [T"]),
    ("merge_states", dict(lse_a=None), ["'lse_a' is missing; expected [T"]),
    ("merge_states", dict(lse_out=F64), ["'lse_out' has dtype float64; allowed: f32"]),
    ("copy_pages", dict(dst=None), ["'dst' is missing; expected [pages"]),
    ("copy_pages", dict(dst=np.zeros((4, 2, 128, 256))),
     ["'dst' has dtype float64; allowed: bf16", "'dst' is float64 of shape [4, 2, 128, 256]"]),
    ("copy_pages", dict(src=np.zeros((4, 2, 128, 256))), ["expected src's type and page shape, float64 of"]),
    ("copy_pages", dict(dst=read_only(np.zeros((4, 2, 128, 256), np.float16))), ["'dst' is <", "read-only"]),
    ("insert_cache", dict(kv_cache=[]), ["'kv_cache' is a list of 0; allowed: one array, or a pair"]),
    ("insert_cache", dict(k=None), ["'k' is missing; expected [T ≥ 2, Hkv = 2, 128] of type"]),
    ("insert_cache", dict(v=None), ["'v' is missing; expected [T ≥ 2, Hkv = 2, 128] of type"]),
    ("insert_cache", dict(k=F64), ["'k' has dtype float64; allowed: bf16", "'k' has 2 dimensions; expected"]),
    ("insert_cache", dict(v=np.zeros((2, 2, 128), np.float32)), ["'v' has dtype f32; allowed: bf16, f16"]),
    ("write_cache", dict(qkv=None), ["'qkv' is missing; expected [T"]),
    ("write_cache", dict(kv_cache=(None,)), ["'kv_cache' is a tuple of 1; allowed: one array, or a pair"]),
    ("write_cache", dict(norm_eps="a"), ["'norm_eps' is 'a'; allowed: a number"]),
    ("write_cache", dict(num_tokens=2.0), ["'num_tokens' is 2.0; allowed: a whole number"]),
    ("layer_step", dict(qkv=None), ["'qkv' is missing; expected [T"]),
    ("layer_step", dict(batch=None), ["'batch' is None; allowed: a msa_cpp.BatchMetadata"]),
    ("layer_step", dict(index_batch=3), ["'index_batch' is <int>; allowed: a msa_cpp.BatchMetadata"]),
    ("layer_step", dict(q_out=None), ["'q_out' is missing; expected [T"]),
    ("layer_step", dict(index_q_out=None), ["'index_q_out' is missing; expected [T"]),
    ("layer_step", dict(topk=0), ["'topk' is 0; allowed: 1 to 64"]),
    ("layer_step", dict(lse_out=F64), ["'lse_out' has dtype float64; allowed: f32"]),
    ("attend_workspace_size", dict(batch=None), ["'batch' is None; allowed"]),
    ("attend_workspace_size", dict(kv_shard=2), ["'kv_shard' is 2; allowed: a pair"]),
    ("index_blocks_workspace_size", dict(out=I64), ["'out' has dtype i64; allowed: i32"]),
    ("index_scores_workspace_size", dict(batch=1), ["'batch' is <int>; allowed"]),
    ("view", dict(array=None), ["'array' is None; allowed: an array with __dlpack__"]),
    ("view", dict(array=np.zeros(2, "M8[s]")), ["'array' is <numpy.ndarray of shape [2] and dtype datetime64"]),
    ("view", dict(dtype="float7"), ["'dtype' is 'float7'; allowed: bf16, f16, f32, e4m3"]),
    ("view", dict(dtype="e4m3"), ["'dtype' is 'e4m3' of 8 bits; allowed: a type of 16 bits"]),
]


@pytest.mark.parametrize("name", ["k", "v"])
def test_what_is_missing_is_all_that_is_said_of_it(calls, name):
    with pytest.raises(msa_cpp.Error) as caught:
        msa_cpp.insert_cache(**{**calls.insert_cache, name: None})
    assert len(caught.value.failures) == 1, str(caught.value)


def test_a_layer_step_speaks_of_its_own_arguments(calls):
    step = calls.layer_step
    other = msa_cpp.BatchMetadata(calls.lengths[:1], calls.table[:1])
    selection = np.zeros((TOKENS, KV_HEADS, 4), np.int32)
    with pytest.raises(msa_cpp.Error) as caught:
        msa_cpp.layer_step(**{**step, "index_batch": other, "selection": selection, "lse_out": F32,
                              "out": step["q_out"], "init_blocks": -1})
    text = str(caught.value)
    for piece in ("argument 'index_batch.num_actual_tokens' is 1; expected batch.num_actual_tokens = 2",
                  "argument 'init_blocks' is -1", "argument 'out' shares memory with 'q'",
                  "argument 'lse_out' has 3 in dimension 1"):
        assert piece in text, text
    for part in ("'rule.", "'write.", "'index.", "'attend.", "'lse'"):
        assert part not in text, text


def test_outputs_that_meet_are_named(calls):
    lse = np.zeros((TOKENS, HEADS), np.float32)
    for call, text in (
        (lambda: msa_cpp.merge_states(*[a.copy() for a in calls.merge_states.values()],
                                      out=np.zeros((TOKENS, HEADS, 128), np.float16), lse_out=F32),
         "'lse_out' has 3 in dimension 1"),
        (lambda: msa_cpp.attend(**calls.attend, lse_out=lse, workspace=lse.view(np.uint8)),
         "'lse_out' shares memory with 'workspace'"),
        (lambda: msa_cpp.select_blocks(**calls.select_blocks,
                                       out=calls.select_blocks["scores"].view(np.int32)[:, :2, :2]),
         "'out' shares memory with 'scores'"),
    ):
        with pytest.raises(msa_cpp.Error) as caught:
            call()
        assert text in str(caught.value), str(caught.value)


@pytest.mark.parametrize("op, wrong, pieces", WRONG, ids=[f"{op}-{'-'.join(w)}-{i}" for i, (op, w, _) in
                                                          enumerate(WRONG)])
def test_what_is_said_of_a_wrong_argument(calls, op, wrong, pieces):
    right = getattr(calls, op)
    outputs = [a for name, a in wrong.items() if name.endswith("out") and isinstance(a, np.ndarray)]
    with pytest.raises(msa_cpp.Error) as caught:
        getattr(msa_cpp, op)(**{**right, **wrong})
    for piece in pieces:
        assert piece in str(caught.value), str(caught.value)
    assert "invalid of" not in str(caught.value) and "dtype invalid" not in str(caught.value)
    assert caught.value.code == "invalid_argument"
    assert not any(out.any() for out in outputs)


def test_the_arguments_that_are_exchanged_are_right(calls):
    for op in sorted({op for op, _, _ in WRONG}):
        getattr(msa_cpp, op)(**getattr(calls, op))


BATCHES = [
    (dict(seq_lens=None), "'seq_lens' is None; allowed: [R] i32"),
    (dict(seq_lens=[1, 2]), "'seq_lens' is <list>; allowed: [R] i32"),
    (dict(seq_lens=np.zeros((1, 2), np.int32)), "'seq_lens' has shape [1, 2]; allowed: [R] i32"),
    (dict(block_table=None), "'block_table' is None; allowed: [R, W] i32"),
    (dict(block_table=np.zeros(4, np.int32)), "'block_table' has shape [4]; allowed: [R, W] i32"),
    (dict(num_prefills=None), "'num_prefills' is None; allowed: a whole number"),
    (dict(decode_query_len=1.5), "'decode_query_len' is 1.5; allowed: a whole number"),
    (dict(num_decodes="2"), "'num_decodes' is '2'; allowed: a whole number, or None"),
    (dict(num_prefills=1), "'num_actual_tokens' is None; allowed: T"),
]


@pytest.mark.parametrize("wrong, text", BATCHES)
def test_what_is_said_of_a_wrong_batch(calls, wrong, text):
    with pytest.raises(msa_cpp.Error) as caught:
        msa_cpp.BatchMetadata(**{"seq_lens": calls.lengths, "block_table": calls.table, **wrong})
    assert f"BatchMetadata: argument {text}" in str(caught.value)


def test_all_that_is_wrong_with_a_batch_is_said():
    with pytest.raises(msa_cpp.Error) as caught:
        msa_cpp.BatchMetadata(None, None, decode_query_len="1")
    assert len(caught.value.failures) == 3


@pytest.mark.parametrize("changes, text", [
    (dict(seq_lens=np.full(2, 200, np.int64)), "'seq_lens' has dtype i64; allowed: i32"),
    (dict(seq_lens=np.full(2, 200, ">i4")), "'seq_lens' is <numpy.ndarray of shape [2] and dtype >i4"),
    (dict(cu_seqlens_q=[0, 1]), "'cu_seqlens_q' is <list>; allowed: an array"),
    (dict(num_actual_tokens=-2), "'num_actual_tokens' is -2; allowed: at least 0"),
    (dict(num_actual_tokens=2**40), "'num_actual_tokens' is 1099511627776; allowed: at least 0"),
    (dict(max_seq_len=2**70), "'max_seq_len' is <1180591620717411303424>; allowed: a whole number"),
])
def test_a_call_names_what_is_wrong_with_its_batch(calls, changes, text):
    batch = msa_cpp.BatchMetadata(**{"seq_lens": calls.lengths, "block_table": calls.table, **changes})
    with pytest.raises(msa_cpp.Error) as caught:
        msa_cpp.attend(**{**calls.attend, "batch": batch})
    assert f"attend: argument {text}" in str(caught.value)


def test_a_batch_that_was_used_is_copied_and_pickled_without_its_views(calls):
    want = msa_cpp.attend(**calls.attend)
    batch = calls.attend["batch"]
    for other in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch)),
                  dataclasses.replace(batch)):
        assert other.max_seq_len == batch.max_seq_len
        assert np.array_equal(msa_cpp.attend(**{**calls.attend, "batch": other}), want)


# --- odd, but right ------------------------------------------------------------------------------


class Foreign:
    """An array of a framework that knows nothing but DLPack, and answers it as old ones do."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Refusing(Foreign):
    def __dlpack__(self, **options):
        raise BufferError("not today")


def test_any_object_with_dlpack_is_a_tensor(calls):
    want = msa_cpp.attend(**calls.attend)
    q, kv, selection, _ = calls.attend.values()
    out = np.zeros_like(q)
    batch = msa_cpp.BatchMetadata(calls.lengths, calls.table)
    msa_cpp.attend(Foreign(q), Foreign(kv), Foreign(selection), batch, out=Foreign(out))
    assert np.array_equal(out, want)
    with pytest.raises(msa_cpp.Error, match="'out' is None; allowed: an array, since"):
        msa_cpp.attend(Foreign(q), kv, selection, batch)
    with pytest.raises(msa_cpp.Error, match="'kv_cache' is <.*Refusing: not today>; allowed: an array"):
        msa_cpp.attend(q, Refusing(kv), selection, batch)


def test_numbers_of_numpy_are_numbers(calls):
    want = msa_cpp.attend(**calls.attend, causal=False)
    got = msa_cpp.attend(**calls.attend, causal=np.bool_(False), k_scale=np.float32(1),
                         v_scale=np.float64(1), workspace_cap=np.int64(1 << 28), kv_shard=np.array([0, 1]))
    assert np.array_equal(got, want)


def test_pairs_of_any_kind(calls):
    q, kv, selection, batch = calls.attend.values()
    want = msa_cpp.attend(q, kv, selection, batch)
    halves = kv[..., :128], kv[..., 128:]
    pair = collections.namedtuple("Pair", "k v")(*halves)
    for cache in (halves, list(halves), pair):
        assert np.array_equal(msa_cpp.attend(q, cache, selection, batch), want)


def test_strides_of_zero_and_outputs_between_inputs(calls):
    q, kv, selection, batch = calls.attend.values()
    repeated = np.broadcast_to(q[:1], q.shape)
    want = msa_cpp.attend(repeated.copy(), kv, selection, batch)
    assert np.array_equal(msa_cpp.attend(repeated, kv, selection, batch), want)
    both = np.zeros((TOKENS, 2 * HEADS, 128), np.float16)
    both[:, ::2] = q
    msa_cpp.attend(both[:, ::2], kv, selection, batch, out=both[:, 1::2])
    assert np.array_equal(both[:, 1::2], msa_cpp.attend(q, kv, selection, batch))
    assert np.array_equal(both[:, ::2], q)


def test_views_of_any_rank_and_of_read_only_memory():
    assert tuple(msa_cpp.view(np.array(1, np.float32)).shape) == ()
    assert tuple(msa_cpp.view(np.zeros((2, 0, 3), np.float16), "bf16").shape) == (2, 0, 3)
    letters = np.frombuffer(b"abcdefgh", np.uint8)
    assert bytes(np.from_dlpack(msa_cpp.view(letters[::-2]))) == b"hfdb"


def test_scores_without_blocks_select_nothing():
    none = msa_cpp.select_blocks(np.zeros((2, 0, 3), np.float32), np.zeros(3, np.int32), topk=4)
    assert none.shape == (3, 2, 4) and (none == -1).all()
