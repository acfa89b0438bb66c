# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""A step of decode and prefill requests whose unseen memory is poison."""

from __future__ import annotations

from types import SimpleNamespace

import msa_cpp
import numpy as np
import pytest

from . import reference


@pytest.fixture
def step():
    """Two decode requests and a prefill request over 4/2 heads; NaN wherever nothing may look."""
    rng = np.random.default_rng(1)
    seq_lens = np.array([300, 129, 260], np.int32)
    table = np.array([[7, 2, 5, -1], [1, 9, 2**31 - 1, 0], [3, 8, 6, -7]], np.int32)
    cu_seqlens_q, context_lens = np.array([0, 5], np.int32), np.array([255], np.int32)
    rows = reference.positions(seq_lens, 1, cu_seqlens_q, context_lens, 2)
    kv = rng.standard_normal((11, 2, 128, 256)).astype(np.float16)
    index_k = rng.integers(-4, 5, (11, 128, 128)).astype(np.float32)
    seen = np.zeros((11, 128), bool)
    for request, length in enumerate(seq_lens):
        for block in range(-(-int(length) // 128)):
            seen[table[request, block], : int(length) - 128 * block] = True
    kv.transpose(0, 2, 1, 3)[~seen] = np.nan
    index_k[~seen] = np.nan
    tokens = len(rows)
    return SimpleNamespace(
        rng=rng, seq_lens=seq_lens, table=table, rows=rows, kv=kv, index_k=index_k, tokens=tokens,
        cu_seqlens_q=cu_seqlens_q, context_lens=context_lens,
        q=rng.standard_normal((tokens, 4, 128)).astype(np.float16),
        index_q=rng.integers(-4, 5, (tokens, 2, 128)).astype(np.float16),
        index_bits=(index_k.view(np.uint32) >> 16).astype(np.uint16),
        selection=np.array([[[0, 2, -1], [1, 1, 99]]] * tokens, np.int32),
        batch=msa_cpp.BatchMetadata(
            seq_lens, table, cu_seqlens_q=cu_seqlens_q, context_lens=context_lens, num_prefills=1,
            num_actual_tokens=tokens),
    )
