# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What the engine plug-ins share: metadata to batches, refusals, cache types, scales.

Nothing here imports an engine or torch; tensors are whatever the engine has, and only their shape,
slices and views are used. A newcomer reads this file first, then `vllm/` or `sglang/`.

Vocabulary: an engine's *layer* attends in *phases*, decode rows first, prefill rows behind them. A
*refusal* is a sentence that says why a layer is left to the engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from operator import is_
from typing import Any

import msa_cpp

PAGE = 128  # tokens of a page, tokens of a block, elements of a head: the one size of the kernels
MAX_GROUP = 16  # query heads that may share a KV head
MAX_TOPK = 64  # blocks that a row may select
MAX_DECODE_QUERY_LEN = 16  # query tokens of a decode request


def switched_off(variable: str) -> bool:
    """Whether the user switched a plug-in off by its environment variable (`MSA_VLLM=0`)."""
    return os.environ.get(variable, "").strip().lower() in {"0", "off", "false", "no"}


# --- phases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """One part of a step: which rows of q, output and selection it has, and their batch."""

    name: str  # "decode" or "prefill"
    rows: slice
    batch: msa_cpp.BatchMetadata


@dataclass(frozen=True)
class _Split:
    """The phases of a step and what they were made of."""

    parts: tuple[Any, ...]
    bounds: tuple[int, ...]
    phases: tuple[Phase, ...]

    def is_of(self, metadata: Any) -> bool:
        parts = _parts(metadata)
        same = len(parts) == len(self.parts) and all(map(is_, parts, self.parts))
        return same and self.bounds == _bounds(metadata)


def _parts(metadata: Any) -> tuple[Any, ...]:
    """The arrays of a step: a batch of theirs is of no use once one is exchanged for another."""
    decode, prefill = metadata.decode, metadata.prefill
    of_decode = () if decode is None else (decode, decode.seq_lens, decode.block_table)
    if prefill is None:
        return of_decode
    of_prefill = (prefill.seq_lens, prefill.block_table, prefill.cu_seqlens_q, prefill.context_lens)
    return (*of_decode, prefill, *of_prefill)


def _bounds(metadata: Any) -> tuple[int, ...]:
    return metadata.num_decode_tokens, metadata.num_actual_tokens, metadata.max_seq_len


def phases(metadata: Any) -> tuple[Phase, ...]:
    """The phases of a step that its engine has split already, decode first; at most one of each.

    `metadata` has `num_decodes`, `num_decode_tokens`, `num_prefills`, `num_actual_tokens` and
    `max_seq_len`; `decode` with `seq_lens` `[R_d]`, `block_table` `[R_d, W]` and
    `decode_query_len`; `prefill` with `seq_lens` `[R_p]`, `block_table` `[R_p, W]`, `cu_seqlens_q`
    `[R_p + 1]` from 0, `context_lens` `[R_p]`, `max_query_len` and `max_seq_len`. Other fields are
    of no interest. Reads no device memory.

    All layers of a step share one metadata object, so the batches are kept on it. They hold nothing
    but the engine's own arrays and bounds, and are made anew where the engine exchanged one of
    these (drafting does, between its steps).

    Source: MiniMaxM3SparseMetadata and MiniMaxM3IndexerMetadata of vLLM.
    """
    kept = getattr(metadata, "msa_split", None)
    if kept is None or not kept.is_of(metadata):
        made = tuple(_split(metadata))
        kept = _Split(_parts(metadata), _bounds(metadata), made)
        try:
            metadata.msa_split = kept
        except AttributeError:  # a frozen or slotted class: then each layer makes its own
            pass
    return kept.phases


def _split(metadata: Any) -> Iterable[Phase]:
    decode_tokens = metadata.num_decode_tokens
    if metadata.num_decodes > 0:
        part = metadata.decode
        batch = msa_cpp.BatchMetadata(
            part.seq_lens,
            part.block_table,
            num_decodes=metadata.num_decodes,
            decode_query_len=part.decode_query_len,
            num_actual_tokens=decode_tokens,
            max_query_len=part.decode_query_len,
            max_seq_len=metadata.max_seq_len,
        )
        yield Phase("decode", slice(0, decode_tokens), batch)
    if metadata.num_prefills > 0:
        part = metadata.prefill
        batch = msa_cpp.BatchMetadata(
            part.seq_lens,
            part.block_table,
            cu_seqlens_q=part.cu_seqlens_q,
            context_lens=part.context_lens,
            num_decodes=0,
            num_prefills=metadata.num_prefills,
            num_actual_tokens=metadata.num_actual_tokens - decode_tokens,
            max_query_len=part.max_query_len,
            max_seq_len=part.max_seq_len,
        )
        yield Phase("prefill", slice(decode_tokens, metadata.num_actual_tokens), batch)


# --- tensors ------------------------------------------------------------------------------------


def by_heads(rows: Any, heads: int) -> Any:
    """`[T, heads · 128]` as `[T, heads, 128]`, the same memory whatever the row stride."""
    return rows.reshape(rows.shape[0], heads, PAGE)


def fp8_kind(cache_dtype: str) -> str | None:
    """The fp8 type that an engine's cache type names, or None where it is none.

    Engines say "fp8" for "fp8_e4m3" and keep either as bytes.
    """
    name = cache_dtype.lower()
    if "e5m2" in name:
        return "e5m2"
    return "e4m3" if name == "fp8" or "e4m3" in name else None


def layer_scale(layer: Any, name: str, cache: Any) -> Any:
    """A layer's `k_scale` or `v_scale`, 1.0 where it has none.

    The device scalar is preferred: it may change between the replays of a graph, which a host
    number would freeze. It is of use only where the kernels can reach it, beside the cache.
    """
    scalar = getattr(layer, f"_{name}", None)
    if scalar is not None and getattr(scalar, "device", None) == getattr(cache, "device", None):
        return scalar.reshape(1)
    return getattr(layer, f"_{name}_float", 1.0)


# --- refusals -----------------------------------------------------------------------------------


def serving_backend(device_type: str) -> str | None:
    """The backend that would serve calls on `device_type` ("cpu" or "cuda"); None: none can."""
    for backend in msa_cpp.backends():
        if (backend["name"] == "cpu") == (device_type == "cpu") and not backend["reasons"]:
            return backend["name"]
    return None


def device_refusals(device_type: str) -> list[str]:
    """Why no backend of this build serves `device_type`; empty where one does."""
    if serving_backend(device_type) is not None:
        return []
    off = [
        f"{backend['name']} is off: {'; '.join(backend['reasons'])}"
        for backend in msa_cpp.backends()
        if (backend["name"] == "cpu") == (device_type == "cpu")
    ]
    return [f"no backend for device type {device_type!r}" + "".join(f" ({why})" for why in off)]


def attend_refusals(
    *, heads: int, kv_heads: int, head_size: int, block_size: int, topk: int, cache_dtype: str
) -> list[str]:
    """Why `attend` cannot serve a layer of this shape; empty where it can."""
    why = _block_refusals(head_size=head_size, block_size=block_size, topk=topk)
    if kv_heads < 1 or heads % kv_heads or not 1 <= heads // kv_heads <= MAX_GROUP:
        why.append(f"{heads} query heads over {kv_heads} KV heads (1 to {MAX_GROUP} may share one)")
    plain = {"auto", "bfloat16", "float16", "bf16", "f16", "half"}
    if cache_dtype not in plain and fp8_kind(cache_dtype) is None:
        why.append(f"KV cache type {cache_dtype!r} (bf16, f16, e4m3 or e5m2)")
    return why


def index_refusals(
    *,
    index_heads: int,
    kv_heads: int,
    head_size: int,
    block_size: int,
    topk: int,
    score_type: str,
    cache_dtype: str,
) -> list[str]:
    """Why `index_blocks` cannot serve a layer of this shape; empty where it can."""
    why = _block_refusals(head_size=head_size, block_size=block_size, topk=topk)
    if index_heads != kv_heads:
        why.append(f"{index_heads} index heads for {kv_heads} KV heads (one each)")
    if score_type != "max":
        why.append(f"block score {score_type!r} ('max')")
    if cache_dtype not in {"bf16", "bfloat16"} and fp8_kind(cache_dtype) != "e4m3":
        why.append(f"index cache type {cache_dtype!r} (bf16 or e4m3)")
    return why


def _block_refusals(*, head_size: int, block_size: int, topk: int) -> list[str]:
    why = []
    if head_size != PAGE:
        why.append(f"head size {head_size} ({PAGE})")
    if block_size != PAGE:
        why.append(f"block size {block_size} ({PAGE})")
    if not 1 <= topk <= MAX_TOPK:
        why.append(f"topk {topk} (1 to {MAX_TOPK})")
    return why
