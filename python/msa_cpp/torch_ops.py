# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The operators as torch operators, ``torch.ops.msa_cpp.*``: for torch.compile and CUDA graphs.

Importing this module defines them (it imports torch). Each writes its outputs in place and says so
in its schema; none has a gradient. The functions here have the arguments of those of the same name
in `msa_cpp`, but for ``stream`` (a torch operator runs on the current stream), take torch tensors
alone, and make missing outputs by torch:

    from msa_cpp import torch_ops
    out = torch_ops.attend(q, kv_cache, selection, batch)

`layer_step` is the three calls `write_cache`, `index_blocks`, `attend`, whose bits it has.
"""

from __future__ import annotations

from typing import Any

import torch

from ._arrays import described
from ._batch import BatchMetadata
from ._library import Error, lib
from ._operators import MAX_TOPK, ONE, SOFTMAX_SCALE, WHOLE, _check_batch, _shard, _split

_BATCH = (
    "Tensor seq_lens, Tensor block_table, Tensor? cu_seqlens_q, Tensor? context_lens, "
    "SymInt num_decodes, SymInt num_prefills, SymInt decode_query_len, SymInt num_actual_tokens, "
    "SymInt max_query_len, SymInt max_seq_len"
)
# Defaults are the packed functions' own: torch leaves out trailing arguments that are equal to them,
# and every one that it passes costs a tenth of a microsecond.
_RULE = "SymInt init_blocks=0, SymInt local_blocks=1, bool reduce_heads=False"
_MEMORY = "Tensor(z!)? workspace=None, SymInt? workspace_cap=None"
# A factor is a number, or the tensor where that is given.
_SCALES = (
    "float k_scale=1.0, Tensor? k_scale_tensor=None, float v_scale=1.0, Tensor? v_scale_tensor=None"
)

_SCHEMAS = {
    "attend": (
        "(Tensor q, Tensor kv_cache, Tensor? v_cache, str? kv_dtype, Tensor selection, "
        f"{_BATCH}, Tensor(a!) out, Tensor(b!)? lse=None, float softmax_scale={SOFTMAX_SCALE!r}, {_SCALES}, "
        "bool causal=True, bool invariant=False, int shard_rank=0, int shard_world=1, "
        f"{_MEMORY}) -> ()"
    ),
    "index_blocks": (
        f"(Tensor index_q, Tensor index_cache, {_BATCH}, Tensor(a!) out, {_RULE}, bool exact=False, "
        f"{_MEMORY}) -> ()"
    ),
    "index_scores": (
        f"(Tensor index_q, Tensor index_cache, {_BATCH}, Tensor(a!) out, bool exact=False, "
        f"{_MEMORY}) -> ()"
    ),
    "select_blocks": (
        f"(Tensor scores, Tensor valid_blocks, Tensor(a!) out, SymInt num_tokens, {_RULE}, "
        f"{_MEMORY}) -> ()"
    ),
    "write_cache": (
        "(Tensor qkv, Tensor positions, Tensor cos_sin, Tensor q_norm, Tensor k_norm, "
        "Tensor? index_q_norm, Tensor? index_k_norm, float norm_eps, Tensor slot_mapping, "
        "Tensor? index_slot_mapping, Tensor(a!) q_out, Tensor(b!) kv_cache, Tensor(c!)? v_cache, "
        "str? kv_dtype, Tensor(d!)? index_q_out, Tensor(e!)? index_cache, "
        f"{_SCALES}, SymInt? num_tokens=None) -> ()"
    ),
    "insert_cache": (
        "(Tensor? k, Tensor? v, Tensor? slot_mapping, Tensor(a!)? kv_cache, Tensor(b!)? v_cache, "
        "str? kv_dtype, Tensor? index_k, Tensor? index_slot_mapping, Tensor(c!)? index_cache, "
        f"{_SCALES}, SymInt? num_tokens=None) -> ()"
    ),
    "copy_pages": "(Tensor src, Tensor(a!) dst, Tensor pairs) -> ()",
    "merge_states": (
        "(Tensor out_a, Tensor lse_a, Tensor out_b, Tensor lse_b, Tensor(a!) out, Tensor(b!) lse) "
        "-> ()"
    ),
}


def _define() -> torch.library.Library:
    library = torch.library.Library("msa_cpp", "DEF")
    for name, schema in _SCHEMAS.items():
        library.define(name + schema)
        # Schemas have the order of the packed functions, which need nothing in between then; the
        # stream at their end is missing: the one that torch works on.
        function = getattr(lib, name)
        for key in ("CPU", "CUDA"):
            library.impl(name, function, key)
        library._register_fake(name, lambda *args: None)
    return library


_Tensor = torch.Tensor
_library = _define()
_ops = torch.ops.msa_cpp
# The overloads themselves: looking one up by its packet costs a microsecond a call.
_attend = _ops.attend.default
_index_blocks = _ops.index_blocks.default
_index_scores = _ops.index_scores.default
_select_blocks = _ops.select_blocks.default
_write_cache = _ops.write_cache.default
_insert_cache = _ops.insert_cache.default
_copy_pages = _ops.copy_pages.default
_merge_states = _ops.merge_states.default


def _fields(op: str, batch: BatchMetadata) -> tuple[Any, ...]:
    if type(batch) is not BatchMetadata:
        _check_batch(op, batch)
    return (
        batch.seq_lens,
        batch.block_table,
        batch.cu_seqlens_q,
        batch.context_lens,
        batch.num_decodes,
        batch.num_prefills,
        batch.decode_query_len,
        batch.num_actual_tokens,
        batch.max_query_len,
        batch.max_seq_len,
    )


def _check_tensor(op: str, name: str, tensor: Any) -> None:
    """What the functions here ask before torch does."""
    if not isinstance(tensor, torch.Tensor):
        raise Error(f"{op}: argument '{name}' is {described(tensor)}; allowed: a torch.Tensor")


def _check_topk(op: str, topk: Any) -> None:
    if not isinstance(topk, int) or not 1 <= topk <= MAX_TOPK:
        raise Error(f"{op}: argument 'topk' is {topk!r}; allowed: 1 to {MAX_TOPK}")


def _scales(k_scale: Any, v_scale: Any) -> tuple[float, Any, float, Any]:
    k = (1.0, k_scale) if isinstance(k_scale, torch.Tensor) else (k_scale, None)
    v = (1.0, v_scale) if isinstance(v_scale, torch.Tensor) else (v_scale, None)
    return (*k, *v)


def attend(
    q: torch.Tensor,
    kv_cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
    selection: torch.Tensor,
    batch: BatchMetadata,
    *,
    out: torch.Tensor | None = None,
    lse_out: torch.Tensor | None = None,
    return_lse: bool = False,
    softmax_scale: float = SOFTMAX_SCALE,
    k_scale: float | torch.Tensor = ONE,
    v_scale: float | torch.Tensor = ONE,
    kv_dtype: str | None = None,
    causal: bool = True,
    invariant: bool = False,
    kv_shard: tuple[int, int] = WHOLE,
    workspace: torch.Tensor | None = None,
    workspace_cap: int | None = None,
) -> Any:
    """``torch.ops.msa_cpp.attend``; arguments, shapes and errors of `msa_cpp.attend`."""
    if out is None:
        _check_tensor("attend", "q", q)
        _check_batch("attend", batch)
        out = q.new_empty((batch.num_actual_tokens, q.shape[1], q.shape[2]))
    if return_lse and lse_out is None:
        lse_out = q.new_empty((batch.num_actual_tokens, q.shape[1]), dtype=torch.float32)
    k, v = (kv_cache, None) if type(kv_cache) is _Tensor else _split("attend", kv_cache)
    # fmt: off
    if (type(batch) is BatchMetadata and softmax_scale is SOFTMAX_SCALE and k_scale is ONE
            and v_scale is ONE and causal is True and invariant is False and kv_shard is WHOLE
            and workspace is None and workspace_cap is None):
        # Arguments that stand at their defaults cost less where they are not passed, and the batch's
        # fields where they are read here.
        _attend(q, k, v, kv_dtype, selection, batch.seq_lens, batch.block_table, batch.cu_seqlens_q,
                batch.context_lens, batch.num_decodes, batch.num_prefills, batch.decode_query_len,
                batch.num_actual_tokens, batch.max_query_len, batch.max_seq_len, out, lse_out)
    else:
        _attend(q, k, v, kv_dtype, selection, *_fields("attend", batch), out, lse_out,
                softmax_scale, *_scales(k_scale, v_scale), causal, invariant,
                *_shard("attend", kv_shard), workspace, workspace_cap)
    # fmt: on
    return (out, lse_out) if return_lse else out


def index_blocks(
    index_q: torch.Tensor,
    index_cache: torch.Tensor,
    batch: BatchMetadata,
    *,
    topk: int = 16,
    out: torch.Tensor | None = None,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    exact: bool = False,
    workspace: torch.Tensor | None = None,
    workspace_cap: int | None = None,
) -> torch.Tensor:
    """``torch.ops.msa_cpp.index_blocks``; arguments, shapes and errors of `msa_cpp.index_blocks`."""
    if out is None:
        _check_tensor("index_blocks", "index_q", index_q)
        _check_batch("index_blocks", batch)
        _check_topk("index_blocks", topk)
        heads = 1 if reduce_heads else index_q.shape[1]
        out = index_q.new_empty((batch.num_actual_tokens, heads, topk), dtype=torch.int32)
    # fmt: off
    _index_blocks(index_q, index_cache, *_fields("index_blocks", batch), out, init_blocks,
                  local_blocks, reduce_heads, exact, workspace, workspace_cap)
    # fmt: on
    return out


def index_scores(
    index_q: torch.Tensor,
    index_cache: torch.Tensor,
    batch: BatchMetadata,
    *,
    blocks: int | None = None,
    out: torch.Tensor | None = None,
    exact: bool = False,
    workspace: torch.Tensor | None = None,
    workspace_cap: int | None = None,
) -> torch.Tensor:
    """``torch.ops.msa_cpp.index_scores``; arguments, shapes and errors of `msa_cpp.index_scores`."""
    if out is None:
        _check_tensor("index_scores", "index_q", index_q)
        _check_batch("index_scores", batch)
        if blocks is None:
            blocks = -(-batch.max_seq_len // 128)
        shape = (index_q.shape[1], blocks, batch.num_actual_tokens)
        out = index_q.new_empty(shape, dtype=torch.float32)
    fields = _fields("index_scores", batch)
    _index_scores(index_q, index_cache, *fields, out, exact, workspace, workspace_cap)
    return out


def select_blocks(
    scores: torch.Tensor,
    valid_blocks: torch.Tensor,
    *,
    topk: int = 16,
    num_tokens: int | None = None,
    out: torch.Tensor | None = None,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    workspace: torch.Tensor | None = None,
    workspace_cap: int | None = None,
) -> torch.Tensor:
    """``torch.ops.msa_cpp.select_blocks``; arguments, shapes and errors of
    `msa_cpp.select_blocks`."""
    if num_tokens is None:
        _check_tensor("select_blocks", "valid_blocks", valid_blocks)
        num_tokens = valid_blocks.shape[0]
    if out is None:
        _check_tensor("select_blocks", "scores", scores)
        _check_topk("select_blocks", topk)
        heads = 1 if reduce_heads else scores.shape[0]
        out = scores.new_empty((num_tokens, heads, topk), dtype=torch.int32)
    # fmt: off
    _select_blocks(scores, valid_blocks, out, num_tokens, init_blocks, local_blocks, reduce_heads,
                   workspace, workspace_cap)
    # fmt: on
    return out


def write_cache(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    *,
    q_norm: torch.Tensor,
    k_norm: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
    q_out: torch.Tensor,
    index_q_norm: torch.Tensor | None = None,
    index_k_norm: torch.Tensor | None = None,
    index_slot_mapping: torch.Tensor | None = None,
    index_q_out: torch.Tensor | None = None,
    index_cache: torch.Tensor | None = None,
    norm_eps: float = 1e-6,
    k_scale: float | torch.Tensor = 1.0,
    v_scale: float | torch.Tensor = 1.0,
    kv_dtype: str | None = None,
    num_tokens: int | None = None,
) -> None:
    """``torch.ops.msa_cpp.write_cache``; arguments, shapes and errors of `msa_cpp.write_cache`."""
    k, v = _split("write_cache", kv_cache)
    # fmt: off
    _write_cache(qkv, positions, cos_sin, q_norm, k_norm, index_q_norm, index_k_norm, norm_eps,
                 slot_mapping, index_slot_mapping, q_out, k, v, kv_dtype, index_q_out, index_cache,
                 *_scales(k_scale, v_scale), num_tokens)
    # fmt: on


def insert_cache(
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    slot_mapping: torch.Tensor | None,
    kv_cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None,
    *,
    index_k: torch.Tensor | None = None,
    index_slot_mapping: torch.Tensor | None = None,
    index_cache: torch.Tensor | None = None,
    k_scale: float | torch.Tensor = 1.0,
    v_scale: float | torch.Tensor = 1.0,
    kv_dtype: str | None = None,
    num_tokens: int | None = None,
) -> None:
    """``torch.ops.msa_cpp.insert_cache``; arguments, shapes and errors of `msa_cpp.insert_cache`."""
    cache_k, cache_v = _split("insert_cache", kv_cache)
    # fmt: off
    _insert_cache(k, v, slot_mapping, cache_k, cache_v, kv_dtype, index_k, index_slot_mapping,
                  index_cache, *_scales(k_scale, v_scale), num_tokens)
    # fmt: on


def copy_pages(src: torch.Tensor, dst: torch.Tensor, pairs: torch.Tensor) -> None:
    """``torch.ops.msa_cpp.copy_pages``; arguments, shapes and errors of `msa_cpp.copy_pages`."""
    _copy_pages(src, dst, pairs)


def merge_states(
    out_a: torch.Tensor,
    lse_a: torch.Tensor,
    out_b: torch.Tensor,
    lse_b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    lse_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.ops.msa_cpp.merge_states``; arguments, shapes and errors of `msa_cpp.merge_states`."""
    if out is None:
        _check_tensor("merge_states", "out_a", out_a)
        out = torch.empty_like(out_a, memory_format=torch.contiguous_format)
    if lse_out is None:
        _check_tensor("merge_states", "lse_a", lse_a)
        lse_out = torch.empty_like(lse_a, memory_format=torch.contiguous_format)
    _merge_states(out_a, lse_a, out_b, lse_b, out, lse_out)
    return out, lse_out
