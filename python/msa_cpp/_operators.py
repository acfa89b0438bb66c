# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The operators. Shapes: T tokens, Hq query heads, Hkv KV heads, Hi index heads, Hs heads of the
selection (Hkv, or 1 for all), R requests; a page and a block are 128 tokens, a head 128 elements.

What holds for all of them:

- Tensors are anything with ``__dlpack__`` (torch, cupy, jax, numpy) or a `view`; any strides, no
  copies. Rows past T are neither read nor written.
- ``stream``: a cudaStream_t as an int, or a stream object; None = the stream that torch works on
  for calls with torch CUDA tensors, else the default stream. CPU calls ignore it.
- ``workspace``: a tensor of at least the bytes that the operator's ``…_workspace_size`` names, on
  the tensors' device; None = memory that the package keeps for the thread (CPU), or that torch
  allocates (calls with torch CUDA tensors); otherwise it must be given.
- Failures raise `Error`, a ValueError, with all failed conditions; nothing is written then. So do
  outputs that may not be written: read-only arrays of numpy, and all of jax.
"""

from __future__ import annotations

from operator import index
from typing import Any

from ._arrays import call, check_outputs, described, empty_like, extent, retry, writable
from ._batch import BatchMetadata
from ._library import Error, lib

SOFTMAX_SCALE = 128**-0.5
ONE = 1.0
WHOLE = (0, 1)  # the shard that is all of a cache
MAX_TOPK = 64

# Positions of what a packed call writes, in its arguments.
_ATTEND_OUTPUTS = (15, 16)
_INDEX_OUTPUTS = (12,)
_SELECT_OUTPUTS = (2,)
_WRITE_OUTPUTS = (10, 11, 12, 14, 15)
_INSERT_OUTPUTS = (3, 4, 8)
_COPY_OUTPUTS = (1,)
_MERGE_OUTPUTS = (4, 5)
_LAYER_OUTPUTS = (*_WRITE_OUTPUTS, 31, 46, 47)


def _split(op: str, kv_cache: Any) -> tuple[Any, Any]:
    """The packed cache and None, or K and V."""
    if isinstance(kv_cache, (tuple, list)):
        if len(kv_cache) != 2:
            raise Error(f"{op}: argument 'kv_cache' is a {type(kv_cache).__name__} of "
                        f"{len(kv_cache)}; allowed: one array, or a pair (k, v)")
        return kv_cache[0], kv_cache[1]
    return kv_cache, None


def _check_batch(op: str, batch: Any, name: str = "batch") -> None:
    if not isinstance(batch, BatchMetadata):
        raise Error(f"{op}: argument '{name}' is {described(batch)}; allowed: a "
                    "msa_cpp.BatchMetadata")


def _shard(op: str, kv_shard: Any) -> tuple[Any, Any]:
    try:
        rank, world = kv_shard
    except (TypeError, ValueError):
        raise Error(f"{op}: argument 'kv_shard' is {kv_shard!r}; allowed: a pair (rank, world)"
                    ) from None
    return rank, world


def _check_count(op: str, name: str, value: Any, low: int, high: int) -> None:
    """Of an array that is to be made: what the library will see is the array alone."""
    try:
        fits = low <= index(value) <= high
    except TypeError:
        fits = False
    if not fits:
        raise Error(f"{op}: argument '{name}' is {value!r}; allowed: {low} to {high}")


def _stream_handle(stream: Any) -> int:
    """The cudaStream_t of what a caller may give as a stream."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "cuda_stream"):  # torch's
        return stream.cuda_stream
    if hasattr(stream, "__cuda_stream__"):  # the protocol of cuda.core, which cupy has too
        return stream.__cuda_stream__()[1]
    raise Error(f"argument 'stream' is {stream!r}; allowed: a cudaStream_t as a number, or a "
                "stream object")


def _torch_workspace(like: Any, size: Any, args: tuple[Any, ...], stream: Any) -> Any:
    """Memory for a call on a stream that torch does not work on at the moment.

    torch's allocator hands freed memory to what is next on the current stream: only memory that was
    allocated for the call's own stream may be freed while the call runs. None for other frameworks.
    """
    if type(like).__module__.partition(".")[0] != "torch" or like.device.type != "cuda":
        return None
    import torch

    own = torch.cuda.ExternalStream(_stream_handle(stream), device=like.device)
    with torch.cuda.stream(own):
        return torch.empty(call(size, args, ()), dtype=torch.uint8, device=like.device)


def _run(
    op: Any, size: Any, like: Any, args: tuple[Any, ...], rest: tuple[Any, ...], outputs: Any
) -> None:
    """``op(*args, *rest)``, where `rest` is the workspace, its cap and the stream."""
    workspace, cap, stream = rest
    if workspace is None and cap is None and stream is None:
        call(op, args, outputs)
        return
    if stream is not None and workspace is None:
        workspace = _torch_workspace(like, size, (*args, None, cap, stream), stream)
    call(op, (*args, workspace, cap, stream), outputs)


def attend(
    q: Any,
    kv_cache: Any,
    selection: Any,
    batch: BatchMetadata,
    *,
    out: Any = None,
    lse_out: Any = None,
    return_lse: bool = False,
    softmax_scale: float = SOFTMAX_SCALE,
    k_scale: Any = ONE,
    v_scale: Any = ONE,
    kv_dtype: str | None = None,
    causal: bool = True,
    invariant: bool = False,
    kv_shard: tuple[int, int] = WHOLE,
    workspace: Any = None,
    workspace_cap: int | None = None,
    stream: Any = None,
) -> Any:
    """Block-sparse softmax attention over the paged cache, decode and prefill (msa/attend.h).

    ``out[t, h] = softmax(q[t, h] . K * softmax_scale * k_scale) V * v_scale`` over the visible keys
    of the blocks that the row selects, as a set: order, -1, repeats and ids that are not visible do
    not matter. A row without a key gets 0 and LSE -inf.

    Args:
        q: [>= T, Hq, 128] bf16|f16, last stride 1.
        kv_cache: [pages, Hkv, 128, 256] bf16|f16|e4m3|e5m2, K of a token in elements 0..127 of its
            row and V in 128..255; or a pair (k, v) of [pages, Hkv, 128, 128].
        selection: [>= T, Hs, topk] i32 block ids, topk 1 to 64.
        batch: the step's lengths, table and counts.
        out: [>= T, Hq, 128] bf16|f16; made as [T, Hq, 128] of q's type where None.
        lse_out: [>= T, Hq] f32: natural log of the sum of exp of the scaled logits; optional.
        return_lse: return the LSE as well, in an array made for it where lse_out is None.
        softmax_scale: factor of the logits.
        k_scale, v_scale: the cache holds K / k_scale and V / v_scale: numbers, or one f32 on the
            tensors' device.
        kv_dtype: the fp8 type of a uint8 cache: "e4m3", "e5m2" or an engine's name for them.
        causal: False: every row of a request sees all its keys.
        invariant: True: a prefill row's bits depend on its own q, selection and keys alone.
        kv_shard: (rank, world): this call's cache holds the blocks b with b % world == rank.
        workspace_cap: the call never asks for a larger workspace, bytes; default 256 MiB.

    Returns:
        out, or (out, lse) with return_lse.

    Raises:
        Error: every argument that is wrong.
    """
    if type(batch) is not BatchMetadata:
        _check_batch("attend", batch)
    if out is None:
        shape = (batch.num_actual_tokens, *getattr(q, "shape", ())[1:])
        out = empty_like("attend", "out", q, "q", shape, None)
    if return_lse and lse_out is None:
        shape = (batch.num_actual_tokens, extent(q, 1))
        lse_out = empty_like("attend", "lse_out", q, "q", shape, "float32")
    k, v = (kv_cache, None) if type(kv_cache) in writable else _split("attend", kv_cache)
    # fmt: off
    lens, table, cu, context, decodes, prefills, m, tokens, queries, keys = (
        batch._args or batch.packed())
    if (softmax_scale is SOFTMAX_SCALE and k_scale is ONE and v_scale is ONE and causal is True
            and invariant is False and kv_shard is WHOLE and workspace is None
            and workspace_cap is None and stream is None):
        # What stands at its default costs a sixth of a call less where it is not passed.
        args = (q, k, v, kv_dtype, selection, lens, table, cu, context, decodes, prefills, m, tokens,
                queries, keys, out, lse_out)
    else:
        rank, world = _shard("attend", kv_shard)
        args = (q, k, v, kv_dtype, selection, lens, table, cu, context, decodes, prefills, m, tokens,
                queries, keys, out, lse_out, softmax_scale, k_scale, None, v_scale, None, causal,
                invariant, rank, world, workspace, workspace_cap, stream)
        if stream is not None and workspace is None:
            workspace = _torch_workspace(q, lib.attend_workspace_size, args, stream)
            args = (*args[:-3], workspace, workspace_cap, stream)
    # fmt: on
    if type(out) not in writable or type(lse_out) not in writable:
        check_outputs(lib.attend, args, _ATTEND_OUTPUTS)
    try:
        lib.attend(*args)
    except Exception as error:  # in here and not by `call`: a tenth of what a call costs
        retry(lib.attend, args, _ATTEND_OUTPUTS, error)
    return (out, lse_out) if return_lse else out


def attend_workspace_size(
    q: Any,
    kv_cache: Any,
    selection: Any,
    batch: BatchMetadata,
    *,
    out: Any = None,
    lse_out: Any = None,
    softmax_scale: float = SOFTMAX_SCALE,
    k_scale: Any = 1.0,
    v_scale: Any = 1.0,
    kv_dtype: str | None = None,
    causal: bool = True,
    invariant: bool = False,
    kv_shard: tuple[int, int] = (0, 1),
    workspace_cap: int | None = None,
) -> int:
    """Bytes of workspace that `attend` needs for these arguments: a function of shapes, types,
    bounds and the cap."""
    _check_batch("attend_workspace_size", batch)
    k, v = _split("attend_workspace_size", kv_cache)
    rank, world = _shard("attend_workspace_size", kv_shard)
    # fmt: off
    args = (q, k, v, kv_dtype, selection, *batch.packed(), out, lse_out, softmax_scale, k_scale,
            None, v_scale, None, causal, invariant, rank, world, None, workspace_cap, None)
    # fmt: on
    return call(lib.attend_workspace_size, args, ())


def index_blocks(
    index_q: Any,
    index_cache: Any,
    batch: BatchMetadata,
    *,
    topk: int = 16,
    out: Any = None,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    exact: bool = False,
    workspace: Any = None,
    workspace_cap: int | None = None,
    stream: Any = None,
) -> Any:
    """The blocks that each row attends to: the best of all visible ones by their largest product
    with the row's index query, in ascending order, then -1 (msa/index.h).

    Forced blocks come first (the row's own and the `local_blocks - 1` before it, then the first
    `init_blocks`), then scores from high to low, NaN last; ties go to the lower id.

    Args:
        index_q: [>= T, Hi, 128] bf16|f16|e4m3 (uint8 counts as e4m3), last stride 1.
        index_cache: [pages, 128, 128] bf16|e4m3 (uint8 counts as e4m3).
        batch: of the step, with the index cache's block table.
        topk: blocks a row selects, 1 to 64; `out`'s extent where that is given.
        out: [>= T, Hs, topk] i32, any strides; made as [T, Hs, topk] where None.
        reduce_heads: True: one list for all heads (Hs = 1), by the largest score of any.
        exact: fp8 x fp8: exact products instead of the fast accumulator.

    Returns:
        out.

    Raises:
        Error: every argument that is wrong.
    """
    if type(batch) is not BatchMetadata:
        _check_batch("index_blocks", batch)
    if out is None:
        _check_count("index_blocks", "topk", topk, 1, MAX_TOPK)
        heads = 1 if reduce_heads else extent(index_q, 1)
        shape = (batch.num_actual_tokens, heads, topk)
        out = empty_like("index_blocks", "out", index_q, "index_q", shape, "int32")
    # fmt: off
    args = (index_q, index_cache, *(batch._args or batch.packed()), out, init_blocks, local_blocks,
            reduce_heads, exact)
    # fmt: on
    rest = (workspace, workspace_cap, stream)
    _run(lib.index_blocks, lib.index_blocks_workspace_size, index_q, args, rest, _INDEX_OUTPUTS)
    return out


def index_blocks_workspace_size(
    index_q: Any,
    index_cache: Any,
    batch: BatchMetadata,
    *,
    out: Any,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    exact: bool = False,
    workspace_cap: int | None = None,
) -> int:
    """Bytes of workspace that `index_blocks` needs for these arguments."""
    _check_batch("index_blocks_workspace_size", batch)
    # fmt: off
    args = (index_q, index_cache, *batch.packed(), out, init_blocks, local_blocks, reduce_heads,
            exact, None, workspace_cap, None)
    # fmt: on
    return call(lib.index_blocks_workspace_size, args, ())


def index_scores(
    index_q: Any,
    index_cache: Any,
    batch: BatchMetadata,
    *,
    blocks: int | None = None,
    out: Any = None,
    exact: bool = False,
    workspace: Any = None,
    workspace_cap: int | None = None,
    stream: Any = None,
) -> Any:
    """The scores that `index_blocks` chooses by: score[h, b, t], -inf where no key of block b is
    visible to row t.

    Args:
        index_q: [>= T, Hi, 128] bf16|f16|e4m3.
        index_cache: [pages, 128, 128] bf16|e4m3.
        batch: of the step, with the index cache's block table.
        blocks: blocks to compute where out is None; default: those of batch.max_seq_len.
        out: [Hi, blocks, >= T] f32, any strides; made as [Hi, blocks, T] where None.
        exact: as in `index_blocks`.

    Returns:
        out.

    Raises:
        Error: every argument that is wrong.
    """
    if type(batch) is not BatchMetadata:
        _check_batch("index_scores", batch)
    if out is None:
        if blocks is None:
            _check_count("index_scores", "max_seq_len", batch.max_seq_len, 0, 2**31 - 1)
            blocks = -(-batch.max_seq_len // 128)
        _check_count("index_scores", "blocks", blocks, 0, 2**31 - 1)
        shape = (extent(index_q, 1), blocks, batch.num_actual_tokens)
        out = empty_like("index_scores", "out", index_q, "index_q", shape, "float32")
    args = (index_q, index_cache, *(batch._args or batch.packed()), out, exact)
    rest = (workspace, workspace_cap, stream)
    _run(lib.index_scores, lib.index_scores_workspace_size, index_q, args, rest, _INDEX_OUTPUTS)
    return out


def index_scores_workspace_size(
    index_q: Any,
    index_cache: Any,
    batch: BatchMetadata,
    *,
    out: Any,
    exact: bool = False,
    workspace_cap: int | None = None,
) -> int:
    """Bytes of workspace that `index_scores` needs for these arguments."""
    _check_batch("index_scores_workspace_size", batch)
    args = (index_q, index_cache, *batch.packed(), out, exact, None, workspace_cap, None)
    return call(lib.index_scores_workspace_size, args, ())


def select_blocks(
    scores: Any,
    valid_blocks: Any,
    *,
    topk: int = 16,
    num_tokens: int | None = None,
    out: Any = None,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    workspace: Any = None,
    workspace_cap: int | None = None,
    stream: Any = None,
) -> Any:
    """The choice of `index_blocks` from scores of any origin.

    Args:
        scores: [Hi, blocks, >= T] f32, any strides.
        valid_blocks: [>= T] i32: candidates of each row, clamped to [0, blocks].
        topk: as in `index_blocks`.
        num_tokens: T; default: valid_blocks' extent.
        out: [>= T, Hs, topk] i32, any strides; made as [T, Hs, topk] where None.

    Returns:
        out.

    Raises:
        Error: every argument that is wrong.
    """
    if num_tokens is None:
        num_tokens = extent(valid_blocks, 0)
    if out is None:
        _check_count("select_blocks", "topk", topk, 1, MAX_TOPK)
        heads = 1 if reduce_heads else extent(scores, 0)
        shape = (num_tokens, heads, topk)
        out = empty_like("select_blocks", "out", scores, "scores", shape, "int32")
    args = (scores, valid_blocks, out, num_tokens, init_blocks, local_blocks, reduce_heads)
    rest = (workspace, workspace_cap, stream)
    _run(lib.select_blocks, lib.select_blocks_workspace_size, scores, args, rest, _SELECT_OUTPUTS)
    return out


def select_blocks_workspace_size(
    scores: Any,
    valid_blocks: Any,
    *,
    out: Any,
    num_tokens: int | None = None,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    workspace_cap: int | None = None,
) -> int:
    """Bytes of workspace that `select_blocks` needs for these arguments."""
    # fmt: off
    args = (scores, valid_blocks, out, num_tokens, init_blocks, local_blocks, reduce_heads, None,
            workspace_cap, None)
    # fmt: on
    return call(lib.select_blocks_workspace_size, args, ())


def write_cache(
    qkv: Any,
    positions: Any,
    cos_sin: Any,
    *,
    q_norm: Any,
    k_norm: Any,
    slot_mapping: Any,
    kv_cache: Any,
    q_out: Any,
    index_q_norm: Any = None,
    index_k_norm: Any = None,
    index_slot_mapping: Any = None,
    index_q_out: Any = None,
    index_cache: Any = None,
    norm_eps: float = 1e-6,
    k_scale: Any = 1.0,
    v_scale: Any = 1.0,
    kv_dtype: str | None = None,
    num_tokens: int | None = None,
    stream: Any = None,
) -> None:
    """Norm, rotary embedding and cache insert of one step's tokens (msa/write_cache.h).

    q, k, index_q and index_k pass a Gemma RMSNorm and a NeoX rotation of elements (i, i + 32),
    i < 32; q and index_q go to their outputs, k and v to the main cache, index_k to the index cache.
    The index arguments are given all together or not at all.

    Args:
        qkv: [>= T, (Hq + 2 Hkv + (Hi + 1 if Hi else 0)) * 128] bf16|f16, in the order
            q | k | v | index_q | index_k, last stride 1.
        positions: [>= T] i64, rows of cos_sin.
        cos_sin: [max_pos, 64] bf16|f16|f32: cos in columns 0..31, sin in 32..63.
        q_norm, k_norm, index_q_norm, index_k_norm: [128] bf16|f16|f32, applied as (1 + w).
        slot_mapping, index_slot_mapping: [>= T] i64: page * 128 + offset; < 0 = skip.
        kv_cache: as in `attend`; written.
        q_out: [>= T, Hq, 128] of qkv's type; written.
        index_q_out: [>= T, Hi, 128] of the index cache's type or of qkv's; written.
        index_cache: [pages, 128, 128] bf16|e4m3; written.
        norm_eps: added to the mean square.
        k_scale, v_scale, kv_dtype: as in `attend`.
        num_tokens: T; default: qkv's rows.

    Raises:
        Error: every argument that is wrong.
    """
    k, v = _split("write_cache", kv_cache)
    # fmt: off
    call(lib.write_cache,
         (qkv, positions, cos_sin, q_norm, k_norm, index_q_norm, index_k_norm, norm_eps,
          slot_mapping, index_slot_mapping, q_out, k, v, kv_dtype, index_q_out, index_cache,
          k_scale, None, v_scale, None, num_tokens, stream),
         _WRITE_OUTPUTS)
    # fmt: on


def insert_cache(
    k: Any,
    v: Any,
    slot_mapping: Any,
    kv_cache: Any,
    *,
    index_k: Any = None,
    index_slot_mapping: Any = None,
    index_cache: Any = None,
    k_scale: Any = 1.0,
    v_scale: Any = 1.0,
    kv_dtype: str | None = None,
    num_tokens: int | None = None,
    stream: Any = None,
) -> None:
    """The insert of `write_cache` without norm and rotation.

    The main part (k, v, slot_mapping, kv_cache) or the index part may be left out as a whole: None
    for each of its arguments.

    Args:
        k, v: [>= T, Hkv, 128] bf16|f16, of one type, last stride 1.
        slot_mapping: [>= T] i64.
        kv_cache: as in `attend`; written.
        index_k: [>= T, 128] bf16|f16.
        index_slot_mapping: [>= T] i64.
        index_cache: [pages, 128, 128] bf16|e4m3; written.
        k_scale, v_scale, kv_dtype: as in `attend`.
        num_tokens: T; default: the rows of k, or of index_k.

    Raises:
        Error: every argument that is wrong.
    """
    cache_k, cache_v = _split("insert_cache", kv_cache)
    # fmt: off
    call(lib.insert_cache,
         (k, v, slot_mapping, cache_k, cache_v, kv_dtype, index_k, index_slot_mapping, index_cache,
          k_scale, None, v_scale, None, num_tokens, stream),
         _INSERT_OUTPUTS)
    # fmt: on


def copy_pages(src: Any, dst: Any, pairs: Any, *, stream: Any = None) -> None:
    """Whole pages moved within or between caches, bit for bit (msa/copy_pages.h).

    Args:
        src: [pages, ...], last stride 1: a main cache, its K or V half, or an index cache.
        dst: of src's type and page shape; may be src; written.
        pairs: [N, 2] i64: (source page, destination page).

    Raises:
        Error: every argument that is wrong.
    """
    call(lib.copy_pages, (src, dst, pairs, stream), _COPY_OUTPUTS)


def merge_states(
    out_a: Any,
    lse_a: Any,
    out_b: Any,
    lse_b: Any,
    *,
    out: Any = None,
    lse_out: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """One attention result from two over disjoint keys (msa/merge.h).

    A side with LSE -inf is an exact no-op; both give (0, -inf).

    Args:
        out_a, out_b: [T, H, 128] bf16|f16|f32, of one type, last stride 1.
        lse_a, lse_b: [T, H] f32.
        out, lse_out: of out_a's and lse_a's shapes, may be these themselves; made where None.

    Returns:
        (out, lse_out).

    Raises:
        Error: every argument that is wrong.
    """
    if out is None:
        shape = tuple(getattr(out_a, "shape", ()))
        out = empty_like("merge_states", "out", out_a, "out_a", shape, None)
    if lse_out is None:
        shape = tuple(getattr(lse_a, "shape", ()))
        lse_out = empty_like("merge_states", "lse_out", lse_a, "lse_a", shape, None)
    call(lib.merge_states, (out_a, lse_a, out_b, lse_b, out, lse_out, stream), _MERGE_OUTPUTS)
    return out, lse_out


# fmt: off
def _layer_args(qkv: Any, positions: Any, cos_sin: Any, batch: Any, index_batch: Any, q_norm: Any,
                k_norm: Any, index_q_norm: Any, index_k_norm: Any, slot_mapping: Any,
                index_slot_mapping: Any, kv_cache: Any, index_cache: Any, q_out: Any,
                index_q_out: Any, selection: Any, out: Any, lse_out: Any, init_blocks: Any,
                local_blocks: Any, reduce_heads: Any, exact: Any, norm_eps: Any, softmax_scale: Any,
                k_scale: Any, v_scale: Any, kv_dtype: Any, causal: Any,
                invariant: Any) -> tuple[Any, ...]:
    """The packed arguments of a layer step up to the workspace."""
    # fmt: on
    k, v = _split("layer_step", kv_cache)
    index_batch = batch if index_batch is None else index_batch
    _check_batch("layer_step", index_batch, "index_batch")
    # fmt: off
    return (qkv, positions, cos_sin, q_norm, k_norm, index_q_norm, index_k_norm, norm_eps,
            slot_mapping, index_slot_mapping, q_out, k, v, kv_dtype, index_q_out, index_cache,
            k_scale, None, v_scale, None, batch.num_actual_tokens,
            *index_batch.packed(), selection, init_blocks, local_blocks, reduce_heads, exact,
            *batch.packed(), out, lse_out, softmax_scale, causal, invariant)
    # fmt: on


def layer_step(
    qkv: Any,
    positions: Any,
    cos_sin: Any,
    batch: BatchMetadata,
    *,
    q_norm: Any,
    k_norm: Any,
    index_q_norm: Any,
    index_k_norm: Any,
    slot_mapping: Any,
    index_slot_mapping: Any,
    kv_cache: Any,
    index_cache: Any,
    q_out: Any,
    index_q_out: Any,
    index_batch: BatchMetadata | None = None,
    selection: Any = None,
    topk: int = 16,
    out: Any = None,
    lse_out: Any = None,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    exact: bool = False,
    norm_eps: float = 1e-6,
    softmax_scale: float = SOFTMAX_SCALE,
    k_scale: Any = 1.0,
    v_scale: Any = 1.0,
    kv_dtype: str | None = None,
    causal: bool = True,
    invariant: bool = False,
    workspace: Any = None,
    workspace_cap: int | None = None,
    stream: Any = None,
) -> Any:
    """One attention layer of one step: `write_cache`, `index_blocks` and `attend`, with the bits of
    the three calls (msa/layer.h). The arguments are theirs.

    Args:
        batch: of the step, with the main cache's table; T tokens.
        index_batch: the same with the index cache's table; default: `batch`.
        q_out: [>= T, Hq, 128]; written, and read by the attention.
        index_q_out: [>= T, Hi, 128]; written, and read by the indexer.
        selection: [>= T, Hs, topk] i32; written; made where None.
        out: [>= T, Hq, 128]; made as [T, Hq, 128] of qkv's type where None.

    Returns:
        out.

    Raises:
        Error: every argument of the three that is wrong.
    """
    _check_batch("layer_step", batch)
    if selection is None:
        _check_count("layer_step", "topk", topk, 1, MAX_TOPK)
        heads = 1 if reduce_heads else extent(index_q_out, 1)
        shape = (batch.num_actual_tokens, heads, topk)
        selection = empty_like("layer_step", "selection", qkv, "qkv", shape, "int32")
    if out is None:
        shape = (batch.num_actual_tokens, *getattr(q_out, "shape", ())[1:])
        out = empty_like("layer_step", "out", qkv, "qkv", shape, None)
    # fmt: off
    args = _layer_args(qkv, positions, cos_sin, batch, index_batch, q_norm, k_norm, index_q_norm,
                       index_k_norm, slot_mapping, index_slot_mapping, kv_cache, index_cache, q_out,
                       index_q_out, selection, out, lse_out, init_blocks, local_blocks,
                       reduce_heads, exact, norm_eps, softmax_scale, k_scale, v_scale, kv_dtype,
                       causal, invariant)
    # fmt: on
    rest = (workspace, workspace_cap, stream)
    _run(lib.layer_step, lib.layer_step_workspace_size, qkv, args, rest, _LAYER_OUTPUTS)
    return out


def layer_step_workspace_size(
    qkv: Any,
    positions: Any,
    cos_sin: Any,
    batch: BatchMetadata,
    *,
    q_norm: Any,
    k_norm: Any,
    index_q_norm: Any,
    index_k_norm: Any,
    slot_mapping: Any,
    index_slot_mapping: Any,
    kv_cache: Any,
    index_cache: Any,
    q_out: Any,
    index_q_out: Any,
    selection: Any,
    index_batch: BatchMetadata | None = None,
    out: Any = None,
    lse_out: Any = None,
    init_blocks: int = 0,
    local_blocks: int = 1,
    reduce_heads: bool = False,
    exact: bool = False,
    norm_eps: float = 1e-6,
    softmax_scale: float = SOFTMAX_SCALE,
    k_scale: Any = 1.0,
    v_scale: Any = 1.0,
    kv_dtype: str | None = None,
    causal: bool = True,
    invariant: bool = False,
    workspace_cap: int | None = None,
) -> int:
    """Bytes of workspace that `layer_step` needs for these arguments."""
    _check_batch("layer_step_workspace_size", batch)
    # fmt: off
    args = _layer_args(qkv, positions, cos_sin, batch, index_batch, q_norm, k_norm, index_q_norm,
                       index_k_norm, slot_mapping, index_slot_mapping, kv_cache, index_cache, q_out,
                       index_q_out, selection, out, lse_out, init_blocks, local_blocks,
                       reduce_heads, exact, norm_eps, softmax_scale, k_scale, v_scale, kv_dtype,
                       causal, invariant)
    # fmt: on
    return call(lib.layer_step_workspace_size, (*args, None, workspace_cap, None), ())
