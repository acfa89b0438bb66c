# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The operators in plain numpy and f64, loop by loop, and the steps that the tests run them on."""

from __future__ import annotations

import numpy as np

PAGE = 128


def positions(seq_lens, decode_len, cu_seqlens_q=None, context_lens=None, decodes=None):
    """(request, position) of each token, decode requests first."""
    decodes = len(seq_lens) if decodes is None else decodes
    rows = [(r, int(seq_lens[r]) - decode_len + i) for r in range(decodes) for i in range(decode_len)]
    for p in range(len(seq_lens) - decodes):
        length = int(cu_seqlens_q[p + 1] - cu_seqlens_q[p])
        rows += [(decodes + p, int(context_lens[p]) + i) for i in range(length)]
    return rows


def attend(q, k, v, selection, rows, table, scale=128**-0.5, causal=True, seq_lens=None):
    """out [T, Hq, 128] and lse [T, Hq] in f64; k, v [pages, Hkv, 128, 128]."""
    tokens, heads, _ = q.shape
    group = heads // k.shape[1]
    out, lse = np.zeros(q.shape), np.full((tokens, heads), -np.inf)
    for t, (request, position) in enumerate(rows):
        visible = max(position + 1, 0) if causal else int(seq_lens[request])
        for h in range(heads):
            kv_head = h // group
            chosen = selection[t, kv_head if selection.shape[1] > 1 else 0]
            logits, values = [], []
            for block in sorted({int(b) for b in chosen if 0 <= b * PAGE < visible}):
                page, keys = table[request, block], min(PAGE, visible - block * PAGE)
                logits.append(k[page, kv_head, :keys].astype(float) @ q[t, h].astype(float) * scale)
                values.append(v[page, kv_head, :keys].astype(float))
            if not logits:
                continue
            logits, values = np.concatenate(logits), np.concatenate(values)
            weights = np.exp(logits - logits.max())
            out[t, h] = weights @ values / weights.sum()
            lse[t, h] = np.log(weights.sum()) + logits.max()
    return out, lse


def scores(index_q, index_k, rows, table, blocks):
    """[Hi, blocks, T] in f64, -inf where no key is visible."""
    result = np.full((index_q.shape[1], blocks, len(rows)), -np.inf)
    for t, (request, position) in enumerate(rows):
        for block in range(min(blocks, -(-max(position + 1, 0) // PAGE))):
            keys = index_k[table[request, block], : min(PAGE, position + 1 - block * PAGE)]
            result[:, block, t] = (index_q[t].astype(float) @ keys.T.astype(float)).max(axis=1)
    return result


def select(score, valid, topk, init=0, local=1, reduce_heads=False):
    """[T, Hs, topk]: ascending ids, then -1."""
    if reduce_heads:
        score = score.max(axis=0, keepdims=True)
    result = np.full((score.shape[2], score.shape[0], topk), -1, np.int32)
    for t in range(score.shape[2]):
        count = min(max(int(valid[t]), 0), score.shape[1])
        for h in range(score.shape[0]):
            def preference(block, h=h, t=t, count=count):
                if block >= count - local:
                    return (0, -block)
                if block < init:
                    return (1, block)
                return (2, -score[h, block, t], block)
            best = sorted(range(count), key=preference)[:topk]
            result[t, h, : len(best)] = sorted(best)
    return result


def write(qkv, position, cos_sin, norms, heads, kv_heads, index_heads, eps=1e-6):
    """q, k, v, index_q, index_k of each token after norm and rotation, in f64."""
    parts, at = [], 0
    for count, norm in zip((heads, kv_heads, kv_heads, index_heads, 1 if index_heads else 0),
                           (norms[0], norms[1], None, norms[2], norms[3])):
        x = qkv[:, at : at + count * 128].reshape(-1, count, 128).astype(float)
        at += count * 128
        if norm is not None and count:
            x = x / np.sqrt((x**2).mean(axis=2, keepdims=True) + eps) * (1 + norm.astype(float))
            cos, sin = (cos_sin[position][:, None, i : i + 32].astype(float) for i in (0, 32))
            low, high = x[..., :32].copy(), x[..., 32:64].copy()
            x[..., :32], x[..., 32:64] = low * cos - high * sin, high * cos + low * sin
        parts.append(x)
    return parts
