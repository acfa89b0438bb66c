# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""MiniMax-M3's block-sparse attention in plain numpy, f64, and a step to try it on.

Read first: `Step` is a batch of requests with paged caches, `select` and `attend` are what the
engines' layers have to compute from it.
"""

from __future__ import annotations

import pathlib
import re
import shlex
from dataclasses import dataclass, field

import numpy as np

PAGE = 128


@dataclass
class Step:
    """Requests with `query_lens[r]` new tokens each, of `seq_lens[r]` tokens in all.

    Pages of the two caches are scattered and differ; page 0 and slots past a request's end hold
    NaN, which must not reach a result.
    """

    query_lens: list[int]
    seq_lens: list[int]
    heads: int = 16
    kv_heads: int = 1
    topk: int = 4
    seed: int = 0
    table: np.ndarray = field(init=False)  # [R, W] i32
    index_table: np.ndarray = field(init=False)  # [R, W] i32
    keys: np.ndarray = field(init=False)  # [R, tokens, Hkv, 128] f32, values likewise
    values: np.ndarray = field(init=False)
    index_keys: np.ndarray = field(init=False)  # [R, tokens, 128] f32, small integers
    q: np.ndarray = field(init=False)  # [T, Hq, 128] f32
    index_q: np.ndarray = field(init=False)  # [T, Hkv, 128] f32, small integers

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        requests, width = len(self.seq_lens), self.width
        pages = 1 + rng.permutation(requests * width).reshape(requests, width)
        self.table = pages.astype(np.int32)
        self.index_table = np.ascontiguousarray(pages[::-1, ::-1]).astype(np.int32)
        tokens = width * PAGE
        self.keys = _bf16(rng.standard_normal((requests, tokens, self.kv_heads, PAGE)))
        self.values = _bf16(rng.standard_normal((requests, tokens, self.kv_heads, PAGE)))
        # Sums of products of small integers are exact in f32 in any order: the chosen ids too.
        self.index_keys = rng.integers(-3, 4, (requests, tokens, PAGE)).astype(np.float32)
        self.q = _bf16(rng.standard_normal((self.tokens, self.heads, PAGE)))
        self.index_q = rng.integers(-3, 4, (self.tokens, self.kv_heads, PAGE)).astype(np.float32)

    @property
    def width(self) -> int:
        """Columns of the block tables, one more than needed."""
        return -(-max(self.seq_lens) // PAGE) + 1

    @property
    def tokens(self) -> int:
        return sum(self.query_lens)

    @property
    def num_pages(self) -> int:
        return 1 + len(self.seq_lens) * self.width

    def paged(self, per_token: np.ndarray, table: np.ndarray) -> np.ndarray:
        """`[R, tokens, …]` as pages `[pages, 128, …]` by a block table, NaN where nothing lies."""
        pages = np.full((self.num_pages, PAGE, *per_token.shape[2:]), np.nan, np.float32)
        for r, length in enumerate(self.seq_lens):
            for column in range(-(-length // PAGE)):
                rows = per_token[r, column * PAGE : min(length, (column + 1) * PAGE)]
                pages[table[r, column], : len(rows)] = rows
        return pages

    def kv_pages(self) -> np.ndarray:
        """The packed cache `[pages, Hkv, 128, 256]` f32."""
        packed = np.concatenate([self.keys, self.values], axis=-1)
        return self.paged(packed, self.table).transpose(0, 2, 1, 3)

    def index_pages(self) -> np.ndarray:
        """The index cache `[pages, 128, 128]` f32, pages by its own table."""
        return self.index_pages_of(self.index_table)

    def index_pages_of(self, table: np.ndarray) -> np.ndarray:
        return self.paged(self.index_keys, table)

    def rows(self) -> list[tuple[int, int]]:
        """Request and position of each query token, in order."""
        ends = zip(self.query_lens, self.seq_lens, strict=True)
        return [(r, end - n + i) for r, (n, end) in enumerate(ends) for i in range(n)]


def select(step: Step) -> np.ndarray:
    """`[T, Hkv, topk]` i32: the own block and the best others, ascending, then -1."""
    chosen = np.full((step.tokens, step.kv_heads, step.topk), -1, np.int32)
    for t, (r, position) in enumerate(step.rows()):
        own = position // PAGE
        dots = step.index_keys[r, : position + 1] @ step.index_q[t].T  # [keys, heads]
        for h in range(step.kv_heads):
            best = [dots[b * PAGE : (b + 1) * PAGE, h].max() for b in range(own + 1)]
            best[own] = np.inf
            order = sorted(range(own + 1), key=lambda b: (-best[b], b))[: step.topk]
            chosen[t, h, : len(order)] = sorted(order)
    return chosen


def attend(step: Step, selection: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """out `[T, Hq, 128]` f64 and the natural log-sum-exp `[T, Hq]` over the selected blocks."""
    group = step.heads // step.kv_heads
    out = np.zeros((step.tokens, step.heads, PAGE))
    lse = np.full((step.tokens, step.heads), -np.inf)
    for t, (r, position) in enumerate(step.rows()):
        for h in range(step.heads):
            kv = h // group
            blocks = [b for b in selection[t, kv] if b >= 0]
            at = np.concatenate([np.arange(b * PAGE, (b + 1) * PAGE) for b in blocks])
            at = at[at <= position]
            logits = step.keys[r, at, kv].astype(np.float64) @ step.q[t, h] * PAGE**-0.5
            top = logits.max()
            weights = np.exp(logits - top)
            out[t, h] = weights @ step.values[r, at, kv].astype(np.float64) / weights.sum()
            lse[t, h] = top + np.log(weights.sum())
    return out, lse


def relative_l2(result: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(result - expected) / np.linalg.norm(expected))


def commands_of(page: str) -> list[list[str]]:
    """The commands in a page's sh blocks, in words, continued lines joined."""
    text = (pathlib.Path(__file__).resolve().parents[3] / page).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


def _bf16(values: np.ndarray) -> np.ndarray:
    """f32 values that bf16 holds exactly: the low 16 bits are cut."""
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)
