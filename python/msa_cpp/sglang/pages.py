# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""SGLang's slot pools as pages, and its slot tables as block tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import msa_cpp
from msa_cpp.engines import PAGE


def paged(pool: torch.Tensor) -> torch.Tensor:
    """A pool `[slots, H, 128]` as `[pages, H, 128, 128]`, the same memory.

    Slots behind the last whole page belong to no page.
    """
    pages = pool.shape[0] // PAGE
    return pool[: pages * PAGE].unflatten(0, (pages, PAGE)).transpose(1, 2)


def block_table(
    req_to_token: torch.Tensor, slot_ids: torch.Tensor, max_seq_len: int
) -> torch.Tensor:
    """`[R, W]` i32: the page of each block of the requests `slot_ids`, for `max_seq_len` tokens.

    Row `slot_ids[r]` of `req_to_token` `[requests, tokens]` i32 names the slot of each token; with
    pages of 128 tokens, the slot of a block's first token names its page. Two kernels, no sync.
    """
    first_slots = req_to_token[:, : max(max_seq_len, 1) : PAGE]
    return first_slots.index_select(0, slot_ids).floor_divide_(PAGE)


@dataclass(frozen=True)
class _Entry:
    key: tuple[Any, ...]  # held, so that no other tensor can take one's identity
    batch: msa_cpp.BatchMetadata


class StepBatches:
    """The batches of the forward pass under way, so that its layers share one block table.

    SGLang's functions are called once a layer with the same tensors, whose contents change from
    pass to pass: an entry must not outlive its pass. `forget` is hooked to where a pass starts;
    `keep` stays False where this SGLang has no such place, and then each layer makes its own.
    """

    def __init__(self) -> None:
        self.keep = False
        self._entries: list[_Entry] = []

    def forget(self, result: Any = None, *args: Any, **kwargs: Any) -> None:
        """A pass starts. Takes what a hook behind a method is given and changes no result."""
        self._entries.clear()

    def of(self, call: Any, make: Any) -> msa_cpp.BatchMetadata:
        """The batch of a call's requests, by `make(call)` where it is the first of its pass."""
        key = (call.req_to_token, call.slot_ids, call.seq_lens)
        for entry in self._entries:
            if all(a is b for a, b in zip(entry.key, key, strict=True)):
                return entry.batch
        batch = make(call)
        if self.keep:
            self._entries.append(_Entry(key, batch))
        return batch


def decode_batch(call: Any) -> msa_cpp.BatchMetadata:
    """One query token for each row of `slot_ids`, which rows may name a request repeatedly."""
    return msa_cpp.BatchMetadata(
        call.seq_lens.to(torch.int32),
        block_table(call.req_to_token, call.slot_ids, call.max_seqlen),
        max_seq_len=call.max_seqlen,
    )


def prefill_batch(call: Any) -> msa_cpp.BatchMetadata:
    """Chunks of `cu_seqlens` query tokens behind `prefix_lens` cached ones."""
    return msa_cpp.BatchMetadata(
        call.seq_lens.to(torch.int32),
        block_table(call.req_to_token, call.slot_ids, call.max_seqlen_k),
        cu_seqlens_q=call.cu_seqlens.to(torch.int32),
        context_lens=call.prefix_lens.to(torch.int32),
        num_prefills=call.seq_lens.shape[0],
        num_decodes=0,
        num_actual_tokens=call.q.shape[0],
        max_query_len=call.max_seqlen_q,
        max_seq_len=call.max_seqlen_k,
    )
