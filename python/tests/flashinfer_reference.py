# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What flashinfer.msa_ops' calls mean, in numpy loops over f64, and the arrays that the tests of
msa_cpp.flashinfer use.
"""

import numpy as np

PAGE = DIM = 128


def to_bf16(x):
    """f64 or f32 to the bits of bf16, round to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _fp8_values(exponent_bits, mantissa_bits, bias, infinities):
    codes = np.arange(256)
    exponent = codes >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = codes & (1 << mantissa_bits) - 1
    fraction = mantissa / (1 << mantissa_bits)
    magnitude = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias)
    )
    if infinities:
        magnitude = np.where(
            exponent == (1 << exponent_bits) - 1, np.where(mantissa == 0, np.inf, np.nan), magnitude
        )
    else:
        magnitude = np.where(codes & 0x7F == 0x7F, np.nan, magnitude)
    return np.where(codes < 128, magnitude, -magnitude)


FP8 = {"e4m3": _fp8_values(4, 3, 7, False), "e5m2": _fp8_values(5, 2, 15, True)}
NAN = {"bf16": 0x7FC0, "f16": 0x7E00, "e4m3": 0x7F, "e5m2": 0x7F}


def values(bits, dtype):
    """The f64 values of raw bits (uint16, or uint8 of fp8)."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "f16":
        return bits.view(np.float16).astype(np.float64)
    return FP8[dtype][bits]


def random_bits(rng, shape, dtype):
    """Raw bits of about unit variance."""
    x = rng.standard_normal(shape)
    if dtype == "bf16":
        return to_bf16(x)
    if dtype == "f16":
        return x.astype(np.float16).view(np.uint16)
    table = FP8[dtype].copy()
    table[~np.isfinite(table)] = 1e9  # never the nearest
    order = np.argsort(table, kind="stable")
    at = np.clip(np.searchsorted(table[order], x), 1, 255)
    return order[at].astype(np.uint8)


def positions(cu_seqlens_q, seqused_k, q_offset=None):
    """(request, position) of every token."""
    rows = []
    for r in range(len(seqused_k)):
        count = int(cu_seqlens_q[r + 1] - cu_seqlens_q[r])
        first = (
            int(seqused_k[r]) - count
            if q_offset is None
            else int(np.broadcast_to(q_offset, len(seqused_k))[r])
        )
        rows += [(r, first + i) for i in range(count)]
    return rows


def _visible(position, length, causal):
    return max(0, min(position + 1, length)) if causal else length


def attention(
    q,
    k,
    v,
    selection,
    cu_seqlens_q,
    page_table,
    seqused_k,
    *,
    causal=True,
    scale=DIM**-0.5,
    v_scale=1.0,
    q_offset=None,
):
    """out [T, Hq, 128] and lse [T, Hq] of q [T, Hq, 128], k and v [pages, Hkv, 128, 128] (f64),
    selection [Hs, T, topk].
    """
    tokens, heads = q.shape[:2]
    group = heads // k.shape[1]
    out = np.zeros((tokens, heads, DIM))
    lse = np.full((tokens, heads), -np.inf)
    for t, (r, position) in enumerate(positions(cu_seqlens_q, seqused_k, q_offset)):
        visible = _visible(position, int(seqused_k[r]), causal)
        for h in range(heads):
            chosen = selection[h // group if len(selection) > 1 else 0, t]
            keys = [
                j
                for b in sorted({int(b) for b in chosen})
                if b >= 0
                for j in range(b * PAGE, min((b + 1) * PAGE, visible))
            ]
            if not keys:
                continue
            at = (page_table[r, np.array(keys) // PAGE], h // group, np.array(keys) % PAGE)
            logits = k[at] @ q[t, h] * scale
            weights = np.exp(logits - logits.max())
            out[t, h] = weights @ v[at] / weights.sum() * v_scale
            lse[t, h] = logits.max() + np.log(weights.sum())
    return out, lse


def proxy_score(q, k, cu_seqlens_q, page_table, seqused_k, blocks, *, causal=True, q_offset=None):
    """[Hi, blocks, T]: the largest visible dot product of each block; k [pages, Hk, 128, 128]."""
    tokens, heads = q.shape[:2]
    group = heads // k.shape[1]
    scores = np.full((heads, blocks, tokens), -np.inf)
    for t, (r, position) in enumerate(positions(cu_seqlens_q, seqused_k, q_offset)):
        visible = _visible(position, int(seqused_k[r]), causal)
        for b in range(min(blocks, -(-visible // PAGE))):
            count = min(PAGE, visible - b * PAGE)
            for h in range(heads):
                scores[h, b, t] = (k[page_table[r, b], h // group, :count] @ q[t, h]).max()
    return scores


def topk_select(scores, topk, valid, begin=0, end=0):
    """[T, H, topk]: forced blocks, then the largest scores, ties to the lower id; ascending, then
    -1.
    """
    heads, _, tokens = scores.shape
    chosen = np.full((tokens, heads, topk), -1, np.int32)
    for t in range(tokens):
        for h in range(heads):
            forced = [b for b in range(valid[t]) if b < begin or b >= valid[t] - end]
            free = [b for b in range(valid[t]) if b not in forced]
            free.sort(key=lambda b: (-scores[h, b, t], b))
            ids = sorted(forced + free[: topk - len(forced)])
            chosen[t, h, : len(ids)] = ids
    return chosen
