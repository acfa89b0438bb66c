# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Every operator on numpy arrays, against the reference; tolerances are docs/contract.md's."""

from __future__ import annotations

import msa_cpp
import numpy as np
import pytest

from . import reference


def poisoned(shape, dtype):
    return np.full(shape, -7 if np.dtype(dtype).kind == "i" else np.nan, dtype)


def check_attend(out, lse, expected):
    want, want_lse = expected
    assert np.abs(out.astype(float) - want).max() <= 1.7e-2
    assert np.linalg.norm(out.astype(float) - want) <= 4e-3 * np.linalg.norm(want)
    assert np.array_equal(np.isneginf(lse), np.isneginf(want_lse))
    finite = np.isfinite(want_lse)
    assert np.abs(lse[finite] - want_lse[finite]).max() <= 1e-4 + 2**-20 * np.abs(want_lse[finite]).max()


@pytest.mark.parametrize("causal", [True, False])
def test_attend(step, causal):
    out, lse = msa_cpp.attend(step.q, step.kv, step.selection, step.batch, return_lse=True, causal=causal)
    k, v = step.kv[..., :128], step.kv[..., 128:]
    expected = reference.attend(step.q, k, v, step.selection, step.rows, step.table, causal=causal,
                                seq_lens=step.seq_lens)
    check_attend(out, lse, expected)


def test_outputs_are_written_in_place_and_rows_past_the_step_are_not(step):
    out = poisoned((step.tokens + 2, 4, 128), np.float16)
    lse = poisoned((step.tokens + 2, 4), np.float32)
    got = msa_cpp.attend(step.q, step.kv, step.selection, step.batch, out=out, lse_out=lse)
    assert got is out
    assert np.isfinite(out[: step.tokens]).all() and np.isnan(out[step.tokens :]).all()
    assert np.isnan(lse[step.tokens :]).all()


def test_strided_views_give_the_same_bits(step):
    want = msa_cpp.attend(step.q, step.kv, step.selection, step.batch)
    token_major = np.ascontiguousarray(step.kv.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    head_major = np.ascontiguousarray(step.selection.transpose(1, 0, 2)).transpose(1, 0, 2)
    wide = poisoned((step.tokens, 9, 128), np.float16)
    out = wide[:, 1:5]
    msa_cpp.attend(step.q, token_major, head_major, step.batch, out=out)
    assert np.array_equal(out, want)
    assert np.isnan(wide[:, 0]).all() and np.isnan(wide[:, 5:]).all()


def test_separate_k_and_v_give_the_same_bits(step):
    want = msa_cpp.attend(step.q, step.kv, step.selection, step.batch)
    pair = step.kv[..., :128].copy(), step.kv[..., 128:].copy()
    assert np.array_equal(msa_cpp.attend(step.q, pair, step.selection, step.batch), want)


def test_read_only_inputs_are_taken_and_read_only_outputs_refused(step):
    want = msa_cpp.attend(step.q, step.kv, step.selection, step.batch)
    out = np.empty_like(want)
    for array in (step.q, step.kv, step.selection, step.seq_lens):
        array.flags.writeable = False
    batch = msa_cpp.BatchMetadata(step.seq_lens, step.table, cu_seqlens_q=step.cu_seqlens_q,
                                  context_lens=step.context_lens, num_prefills=1,
                                  num_actual_tokens=step.tokens)
    assert np.array_equal(msa_cpp.attend(step.q, step.kv, step.selection, batch, out=out), want)
    out.flags.writeable = False
    with pytest.raises(msa_cpp.Error, match="read-only"):
        msa_cpp.attend(step.q, step.kv, step.selection, batch, out=out)


def e4m3(x):
    """Nearest e4m3 byte of finite values below 448, and the values of all bytes."""
    code = np.arange(256)
    sign, exponent, mantissa = 1 - 2.0 * (code >> 7), code >> 3 & 15, code & 7
    values = sign * np.where(exponent > 0, 2.0 ** (exponent - 7) * (1 + mantissa / 8), mantissa * 2.0**-9)
    values[[127, 255]] = np.inf
    order = np.argsort(values[:127])
    nearest = np.abs(np.abs(x)[..., None] - values[order]).argmin(-1)
    return (order[nearest] + 128 * (x < 0)).astype(np.uint8), values


def test_fp8_cache_as_raw_bytes_and_as_a_view(step):
    x = np.nan_to_num(step.kv[:, :, :, :].astype(np.float32))
    codes, values = e4m3(x)
    decoded = values[codes]
    expected = reference.attend(step.q, decoded[..., :128], decoded[..., 128:], step.selection, step.rows,
                                step.table)
    out, lse = msa_cpp.attend(step.q, codes, step.selection, step.batch, kv_dtype="fp8", return_lse=True)
    check_attend(out, lse, expected)
    view = msa_cpp.view(codes, "e4m3")
    assert np.array_equal(msa_cpp.attend(step.q, view, step.selection, step.batch), out)
    scaled = msa_cpp.attend(step.q, view, step.selection, step.batch, v_scale=np.array([0.5], np.float32))
    assert np.allclose(scaled.astype(float), out.astype(float) / 2, atol=2e-3)
    with pytest.raises(msa_cpp.Error, match="u8"):
        msa_cpp.attend(step.q, codes, step.selection, step.batch)


@pytest.mark.parametrize("reduce_heads", [False, True])
def test_index_blocks_scores_and_selection(step, reduce_heads):
    cache = msa_cpp.view(step.index_bits, "bf16")
    want_scores = reference.scores(step.index_q, step.index_k, step.rows, step.table, 4)
    scores = msa_cpp.index_scores(step.index_q, cache, step.batch)
    assert np.array_equal(scores, want_scores)
    valid = np.array([max(position, -1) // 128 + 1 for _, position in step.rows], np.int32)
    want = reference.select(want_scores, valid, 2, reduce_heads=reduce_heads)
    got = msa_cpp.index_blocks(step.index_q, cache, step.batch, topk=2, reduce_heads=reduce_heads)
    assert np.array_equal(got, want)
    again = msa_cpp.select_blocks(scores, valid, topk=2, reduce_heads=reduce_heads)
    assert np.array_equal(again, want)
    head_major = poisoned((want.shape[1], step.tokens, 2), np.int32).transpose(1, 0, 2)
    msa_cpp.index_blocks(step.index_q, cache, step.batch, out=head_major, reduce_heads=reduce_heads)
    assert np.array_equal(head_major, want)


def test_forced_blocks():
    scores = np.random.default_rng(3).integers(0, 3, (2, 9, 4)).astype(np.float32)
    valid = np.array([9, 5, 1, 0], np.int32)
    got = msa_cpp.select_blocks(scores, valid, topk=4, init_blocks=1, local_blocks=2)
    assert np.array_equal(got, reference.select(scores, valid, 4, init=1, local=2))


def written_step(rng):
    heads, kv_heads, index_heads, tokens = 4, 2, 2, 6
    angle = rng.uniform(0, 6, (40, 32))
    return dict(
        qkv=rng.standard_normal((tokens, (heads + 2 * kv_heads + index_heads + 1) * 128)).astype(np.float16),
        positions=rng.integers(0, 40, tokens),
        cos_sin=np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32),
        norms=[rng.standard_normal(128).astype(np.float32) * 0.1 for _ in range(4)],
        slots=np.array([5, 130, -1, 200, 0, 383]),
    )


def test_write_cache_and_insert_cache(step):
    w = written_step(step.rng)
    q, k, v, index_q, index_k = reference.write(
        w["qkv"], w["positions"], w["cos_sin"], w["norms"], 4, 2, 2)
    kv = poisoned((3, 2, 128, 256), np.float16)
    index = np.full((3, 128, 128), 0x7FC0, np.uint16)
    q_out, index_q_out = poisoned((6, 4, 128), np.float16), poisoned((6, 2, 128), np.float16)
    names = ("q_norm", "k_norm", "index_q_norm", "index_k_norm")
    msa_cpp.write_cache(
        w["qkv"], w["positions"], w["cos_sin"], **dict(zip(names, w["norms"])), kv_cache=kv, q_out=q_out,
        slot_mapping=w["slots"], index_slot_mapping=w["slots"], index_q_out=index_q_out,
        index_cache=msa_cpp.view(index, "bf16"))
    assert np.allclose(q_out, q, rtol=2**-10, atol=1e-5)
    assert np.allclose(index_q_out, index_q, rtol=2**-10, atol=1e-5)
    kept = w["slots"] >= 0
    rows = kv.transpose(0, 2, 1, 3).reshape(384, 2, 256)
    assert np.allclose(rows[w["slots"][kept], :, :128], k[kept], rtol=2**-10, atol=1e-5)
    assert np.array_equal(rows[w["slots"][kept], :, 128:], v[kept].astype(np.float16))
    assert np.isnan(np.delete(rows, w["slots"][kept], axis=0)).all()
    stored = (index.reshape(384, 128)[w["slots"][kept]].astype(np.uint32) << 16).view(np.float32)
    assert np.allclose(stored, index_k[kept, 0], rtol=2**-7, atol=1e-5)

    again = poisoned(kv.shape, np.float16)
    msa_cpp.insert_cache(k.astype(np.float16), v.astype(np.float16), w["slots"], again)
    inserted = again.transpose(0, 2, 1, 3).reshape(384, 2, 256)[w["slots"][kept]]
    assert np.array_equal(inserted[..., :128], k[kept].astype(np.float16))
    assert np.array_equal(inserted[..., 128:], v[kept].astype(np.float16))


def test_copy_pages(step):
    moved = np.zeros_like(step.kv)
    msa_cpp.copy_pages(step.kv, moved, np.array([[7, 0], [2, 10]]))
    assert np.array_equal(moved[[0, 10]], step.kv[[7, 2]], equal_nan=True)
    assert not moved[1:10].any()


def test_merge_states_of_two_halves_is_the_whole(step):
    selection = np.array([[[0, 1, 2]] * 2] * step.tokens, np.int32)
    whole, whole_lse = msa_cpp.attend(step.q, step.kv, selection, step.batch, return_lse=True)
    halves = [msa_cpp.attend(step.q, step.kv, part, step.batch, return_lse=True)
              for part in (selection[..., :1], selection[..., 1:])]
    out, lse = msa_cpp.merge_states(*halves[0], *halves[1])
    assert np.abs(out.astype(float) - whole.astype(float)).max() < 4e-3
    assert np.abs(lse - whole_lse).max() < 1e-4


def test_layer_step_has_the_bits_of_the_three_calls(step):
    w = written_step(step.rng)
    batch = msa_cpp.BatchMetadata(np.array([6], np.int32), np.array([[1]], np.int32), decode_query_len=6)
    slots = np.arange(128, 134)
    names = ("q_norm", "k_norm", "index_q_norm", "index_k_norm")

    def buffers():
        return dict(kv_cache=poisoned((3, 2, 128, 256), np.float16), q_out=poisoned((6, 4, 128), np.float16),
                    index_q_out=poisoned((6, 2, 128), np.float16),
                    index_cache=msa_cpp.view(np.full((3, 128, 128), 0x7FC0, np.uint16), "bf16"),
                    slot_mapping=slots, index_slot_mapping=slots, **dict(zip(names, w["norms"])))

    given = buffers()
    out = msa_cpp.layer_step(w["qkv"], w["positions"], w["cos_sin"], batch, topk=4, **given)
    b = buffers()
    msa_cpp.write_cache(w["qkv"], w["positions"], w["cos_sin"], **b)
    selection = msa_cpp.index_blocks(b["index_q_out"], b["index_cache"], batch, topk=4)
    assert np.array_equal(msa_cpp.attend(b["q_out"], b["kv_cache"], selection, batch), out)
    assert np.array_equal(given["kv_cache"], b["kv_cache"], equal_nan=True)


def test_workspaces(step):
    cache = msa_cpp.view(step.index_bits, "bf16")
    out = poisoned((step.tokens, 2, 2), np.int32)
    size = msa_cpp.index_blocks_workspace_size(step.index_q, cache, step.batch, out=out)
    want = msa_cpp.index_blocks(step.index_q, cache, step.batch, topk=2)
    memory = np.full(max(size, 1), 255, np.uint8)
    msa_cpp.index_blocks(step.index_q, cache, step.batch, out=out, workspace=memory)
    assert np.array_equal(out, want)
    if size > 0:
        with pytest.raises(msa_cpp.Error) as error:
            msa_cpp.index_blocks(step.index_q, cache, step.batch, out=out, workspace=memory[: size // 2])
        assert error.value.code == "workspace"
    assert msa_cpp.attend_workspace_size(step.q, step.kv, step.selection, step.batch) >= 0


def test_empty_steps():
    batch = msa_cpp.BatchMetadata(np.zeros(0, np.int32), np.zeros((0, 4), np.int32))
    out = msa_cpp.attend(np.zeros((0, 4, 128), np.float16), np.zeros((0, 2, 128, 256), np.float16),
                         np.zeros((0, 2, 16), np.int32), batch)
    assert out.shape == (0, 4, 128)
