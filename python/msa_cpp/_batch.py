# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The batch of one step."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ._arrays import view

PAGE_SIZE = 128
"""Tokens of a cache page, and of a selectable block."""


@dataclass(slots=True, eq=False)
class BatchMetadata:
    """What one step computes, decode requests first (msa/metadata.h).

    The first ``num_decodes * decode_query_len`` tokens belong to `num_decodes` requests of exactly
    `decode_query_len` query tokens each, the rest to `num_prefills` requests of any lengths. Decode
    token t of request r sits at position ``seq_len - m + t % m``, prefill token i of a request at
    ``context_len + i``; a row sees the keys up to its own position.

    One object may serve any number of calls: its views of the arrays are made once, and what the
    arrays hold may change between calls.
    """

    seq_lens: Any
    """[R] i32: keys in the cache, this step's tokens included; 0 = a padding row."""
    block_table: Any
    """[R, W] i32: logical page -> physical page; entries past a request's keys may hold anything."""
    _: KW_ONLY
    cu_seqlens_q: Any = None
    """[num_prefills + 1] i32, starts at 0; not needed without prefill requests."""
    context_lens: Any = None
    """[num_prefills] i32: seq_len - query_len; not needed without prefill requests."""
    num_decodes: int | None = None
    """R_d; default: the requests that are not prefill requests."""
    num_prefills: int = 0
    """R_p."""
    decode_query_len: int = 1
    """m, 1 to 16."""
    num_actual_tokens: int | None = None
    """T; default: the decode tokens. Required where there are prefill requests."""
    max_query_len: int | None = None
    """Upper bound of any request's query tokens; default: T, or m without prefill requests."""
    max_seq_len: int | None = None
    """Upper bound of any request's keys; default: what the table's columns can hold."""
    _args: tuple[Any, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.num_decodes is None:
            self.num_decodes = int(self.seq_lens.shape[0]) - self.num_prefills
        if self.num_actual_tokens is None:
            if self.num_prefills > 0:
                from ._library import Error

                raise Error("BatchMetadata: argument 'num_actual_tokens' is missing; it is known "
                            "without prefill requests only, and num_prefills is "
                            f"{self.num_prefills}")
            self.num_actual_tokens = self.num_decodes * self.decode_query_len
        if self.max_query_len is None:
            self.max_query_len = max(self.num_actual_tokens, 1) if self.num_prefills else (
                self.decode_query_len)
        if self.max_seq_len is None:
            self.max_seq_len = int(self.block_table.shape[1]) * PAGE_SIZE

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name != "_args":
            object.__setattr__(self, "_args", None)  # made of the fields

    def packed(self) -> tuple[Any, ...]:
        """The fields as the library's functions take them, in order."""
        if self._args is None:
            self._args = (
                view(self.seq_lens),
                view(self.block_table),
                None if self.cu_seqlens_q is None else view(self.cu_seqlens_q),
                None if self.context_lens is None else view(self.context_lens),
                self.num_decodes,
                self.num_prefills,
                self.decode_query_len,
                self.num_actual_tokens,
                self.max_query_len,
                self.max_seq_len,
            )
        return self._args
