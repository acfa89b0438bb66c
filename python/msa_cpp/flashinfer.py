# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The calls of `flashinfer.msa_ops`, served by msa.cpp.

A program that imports from ``flashinfer.msa_ops`` imports from ``msa_cpp.flashinfer`` instead and
stays as it is: names, argument names, order, defaults and results' shapes are those of FlashInfer
0.7.4. What its SM90 kernels refuse is served too: bf16 and f16 caches, log-sum-exp, K and V apart
from each other, every cache order and stride, selections that are views of token-major memory,
``causal=False``, any number of blocks up to 64, and CPU tensors. Arguments behind the last one that
FlashInfer has are this module's own, keyword-only and optional. ``docs/migration-flashinfer.md`` is
the table of both.

Symbols of the shapes: T query tokens of R requests, Hq query heads, Hkv KV heads, W columns of the
page table; a page and a block are 128 tokens. Arrays are anything that msa_cpp takes (torch, cupy,
jax, numpy, msa_cpp.view); none is copied.
"""

from __future__ import annotations

import re
import sys
from numbers import Integral, Real
from typing import Any

from . import BatchMetadata, Error, attend, index_scores, select_blocks
from ._arrays import described, extent

__all__ = [
    "MSASparseAttentionWorkspace",
    "SUPPORTS_PACKED_KV",
    "msa_proxy_score",
    "msa_sparse_attention",
    "msa_sparse_decode_attention",
    "msa_topk_select",
    "supports_packed_kv",
]

#: K and V may be the halves of one packed cache, on every device.
SUPPORTS_PACKED_KV = True

_PAGE = 128
_MAX_DECODE_QUERY_LEN = 16

# What the library's arguments are called here.
_OF_ATTENTION = {
    "k_cache": "k",
    "kv_cache": "k",
    "v_cache": "v",
    "selection": "q2k_indices",
    "seq_lens": "seqused_k",
    "block_table": "page_table",
}
_OF_SCORES = {
    "index_q": "q",
    "index_cache": "k",
    "seq_lens": "seqused_k",
    "block_table": "page_table",
    "out": "output",
}
_OF_CHOICE = {
    "scores": "max_score",
    "valid_blocks": "num_valid_pages",
    "init_blocks": "force_begin_blocks",
    "local_blocks": "force_end_blocks",
    "out": "output",
}


def supports_packed_kv(device: Any) -> bool:
    """Whether K and V may be views split from one packed cache on ``device``: always."""
    del device  # the strides are read, whatever they are
    return True


class MSASparseAttentionWorkspace:
    """Accepted wherever FlashInfer takes one, and holds nothing.

    FlashInfer's owns what a captured graph on SM100 writes to. Here a call that is captured takes
    its workspace from torch's allocator, in whose memory of the capture the graph keeps it.
    """

    def __init__(self, device: Any) -> None:
        self.device = device


def msa_sparse_attention(
    q: Any,
    k: Any,
    v: Any,
    q2k_indices: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    causal: bool = False,
    softmax_scale: float | None = None,
    page_table: Any = None,
    seqused_k: Any = None,
    return_softmax_lse: bool = False,
    k_scale: Any = None,
    v_scale: Any = None,
    k_global_scale: float | None = None,
    v_global_scale: float | None = None,
    q_offset: Any = None,
    return_temperature_lse: bool = False,
    lse_temperature_scale: float = 1.0,
    workspace: Any = None,
    out: Any = None,
    *,
    lse_out: Any = None,
    kv_dtype: str | None = None,
    stream: Any = None,
) -> Any:
    """Block-sparse attention of requests with any numbers of query tokens.

    Args:
        q: [T, Hq, 128] bf16 or f16, any row and head strides.
        k, v: [pages, Hkv, 128, 128] each, bf16, f16, e4m3 or e5m2, any strides: the halves of one
            packed cache, or apart. Bytes (uint8) need ``kv_dtype``.
        q2k_indices: [Hkv, T, topk] i32, or [1, T, topk] for one list that serves all heads, any
            strides; block ids in any order, -1 anywhere for none, topk 1 to 64. A token-major
            buffer [T, Hkv, topk] is passed as its view ``.transpose(0, 1)``, without
            ``.contiguous()``.
        cu_seqlens_q: [R + 1] i32, starts at 0: the query tokens of each request.
        cu_seqlens_k: of flat K and V, which are refused; None.
        causal: False lets every token of a request see all of its ``seqused_k`` keys.
        softmax_scale: 128 ** -0.5 where None.
        page_table: [R, W] i32, required; row stride of at least W.
        seqused_k: [R] i32, required: keys of each request, these query tokens' own included.
        return_softmax_lse: adds lse [T, Hq] f32, the natural log of the sum of exponentials of the
            scaled logits.
        k_scale, v_scale: one-element f32 tensors: logits * k_scale, output * v_scale; their
            contents may change between replays of a graph. FlashInfer's block scales of NVFP4 are
            refused.
        k_global_scale, v_global_scale: the same as floats. ``v_global_scale`` and ``v_scale``
            exclude each other.
        q_offset: position of each request's first query token, an int or [R] i32; right-aligned
            where None. Positions at or past ``seqused_k`` see all keys. MSA_CHECK=1 reports any but
            right alignment.
        return_temperature_lse: returns (out, lse, lse_t), where lse_t is that of logits scaled by
            ``lse_temperature_scale`` once more: a second pass over the keys.
        workspace: bytes on q's device, or None; FlashInfer's class is accepted and not needed.
        out: [T, Hq, 128] bf16 or f16, any row and head strides; is written in place and returned.
        lse_out: [T, Hq] f32, written in place and returned where an lse is.
        kv_dtype: type of a cache of bytes, "e4m3" or "e5m2".
        stream: as in msa_cpp.attend.

    Returns:
        out; (out, lse); or (out, lse, lse_t).

    Raises:
        Error: (a ValueError) lists every argument that is wrong; nothing is written then.

    Source: flashinfer.msa_ops.msa_sparse_attention; msa_cpp.attend does the work.
    """
    failures = _array_failures(q=(q, 3), v=(v, 4), cu_seqlens_q=(cu_seqlens_q, 1))
    failures += _paged_failures(k, page_table, seqused_k, cu_seqlens_k)
    failures += _selection_failures(q2k_indices, k, q)
    failures += _scale_failures(k_scale, v_scale, v_global_scale)
    failures += _number_failures(
        softmax_scale=softmax_scale,
        k_global_scale=k_global_scale,
        v_global_scale=v_global_scale,
        lse_temperature_scale=lse_temperature_scale,
    )
    failures += _offset_failures(q_offset)
    _refuse("msa_sparse_attention", failures)
    batch = BatchMetadata(
        seqused_k,
        page_table,
        cu_seqlens_q=cu_seqlens_q,
        context_lens=_first_positions(q_offset, seqused_k, cu_seqlens_q),
        num_decodes=0,
        num_prefills=seqused_k.shape[0],
        num_actual_tokens=q.shape[0],
    )
    return _attend(
        "msa_sparse_attention",
        q,
        k,
        v,
        q2k_indices,
        batch,
        q_offset=q_offset,
        causal=causal,
        softmax_scale=softmax_scale,
        return_softmax_lse=return_softmax_lse,
        k_scale=k_scale,
        v_scale=v_scale,
        k_global_scale=k_global_scale,
        v_global_scale=v_global_scale,
        return_temperature_lse=return_temperature_lse,
        lse_temperature_scale=lse_temperature_scale,
        workspace=workspace,
        out=out,
        lse_out=lse_out,
        kv_dtype=kv_dtype,
        stream=stream,
    )


def msa_sparse_decode_attention(
    q: Any,
    k: Any,
    v: Any,
    q2k_indices: Any,
    *,
    page_table: Any = None,
    seqused_k: Any = None,
    cu_seqlens_k: Any = None,
    seqlen_q: int = 1,
    causal: bool = True,
    softmax_scale: float | None = None,
    return_softmax_lse: bool = False,
    k_scale: Any = None,
    v_scale: Any = None,
    k_global_scale: float | None = None,
    v_global_scale: float | None = None,
    q_offset: Any = None,
    partial_dtype: Any = None,
    force_fused: bool | None = None,
    workspace: Any = None,
    out: Any = None,
    lse_out: Any = None,
    kv_dtype: str | None = None,
    stream: Any = None,
) -> Any:
    """Block-sparse attention of requests with exactly ``seqlen_q`` query tokens each.

    Token i of a request sits at position seqused_k - seqlen_q + i. Up to 16 tokens a request go to
    the decode kernels; more, and a ``q_offset``, to those of msa_sparse_attention, with the same
    result but for rounding.

    Args:
        q: [R * seqlen_q, Hq, 128] bf16 or f16, any row and head strides.
        k, v, q2k_indices, page_table, seqused_k, softmax_scale, return_softmax_lse, k_scale,
            v_scale, k_global_scale, v_global_scale, workspace, out, lse_out, kv_dtype, stream: as
            in msa_sparse_attention.
        seqlen_q: query tokens of every request, at least 1.
        causal: False lets every token of a request see all of its keys.
        q_offset: position of each request's first query token, an int or [R] i32; right-aligned
            where None.
        partial_dtype, force_fused: hints to FlashInfer's kernels, which change nothing here.

    Returns:
        out [R * seqlen_q, Hq, 128]; or (out, lse [R * seqlen_q, Hq] f32).

    Raises:
        Error: (a ValueError) lists every argument that is wrong; nothing is written then.

    Source: flashinfer.msa_ops.msa_sparse_decode_attention; msa_cpp.attend does the work.
    """
    del partial_dtype, force_fused
    rows = extent(q, 0)
    failures = _array_failures(q=(q, 3), v=(v, 4))
    failures += _paged_failures(k, page_table, seqused_k, cu_seqlens_k)
    failures += _selection_failures(q2k_indices, k, q)
    failures += _scale_failures(k_scale, v_scale, v_global_scale)
    failures += _number_failures(
        softmax_scale=softmax_scale, k_global_scale=k_global_scale, v_global_scale=v_global_scale
    )
    failures += _offset_failures(q_offset)
    if not isinstance(seqlen_q, Integral) or seqlen_q < 1:
        failures.append(f"argument 'seqlen_q' is {seqlen_q!r}; allowed: at least 1")
    elif not failures and seqused_k.shape[0] * seqlen_q != rows:
        failures.append(
            f"argument 'q' has {rows} rows; allowed: {seqused_k.shape[0]} requests (entries of "
            f"'seqused_k') * 'seqlen_q' {seqlen_q} = {seqused_k.shape[0] * seqlen_q}"
        )
    _refuse("msa_sparse_decode_attention", failures)
    if q_offset is None and seqlen_q <= _MAX_DECODE_QUERY_LEN:
        batch = BatchMetadata(
            seqused_k, page_table, decode_query_len=seqlen_q, max_query_len=seqlen_q
        )
    else:
        starts = _library(seqused_k).arange(0, rows + 1, seqlen_q, **_int32(seqused_k))
        batch = BatchMetadata(
            seqused_k,
            page_table,
            cu_seqlens_q=starts,
            context_lens=_first_positions(q_offset, seqused_k, starts),
            num_decodes=0,
            num_prefills=seqused_k.shape[0],
            num_actual_tokens=rows,
            max_query_len=seqlen_q,
        )
    return _attend(
        "msa_sparse_decode_attention",
        q,
        k,
        v,
        q2k_indices,
        batch,
        q_offset=q_offset,
        causal=causal,
        softmax_scale=softmax_scale,
        return_softmax_lse=return_softmax_lse,
        k_scale=k_scale,
        v_scale=v_scale,
        k_global_scale=k_global_scale,
        v_global_scale=v_global_scale,
        return_temperature_lse=False,
        lse_temperature_scale=1.0,
        workspace=workspace,
        out=out,
        lse_out=lse_out,
        kv_dtype=kv_dtype,
        stream=stream,
    )


def msa_proxy_score(
    q: Any,
    k: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *,
    page_table: Any = None,
    seqused_k: Any = None,
    causal: bool = True,
    max_seqlen_q: int | None = None,
    max_k_tiles: int | None = None,
    output: Any = None,
    reduce_heads: bool = False,
    q_offset: Any = None,
    use_fp32_acc: bool = True,
    workspace: Any = None,
    stream: Any = None,
) -> Any:
    """The largest unscaled logit of each block of 128 keys, for each query token and index head.

    Args:
        q: [T, Hi, 128] index queries, bf16, f16 or e4m3, any row and head strides.
        k: [pages, Hk, 128, 128] index keys, bf16 or e4m3, any page and token strides; Hi is a
            multiple of Hk. A cache of one key head may come without the dimension,
            [pages, 128, 128], as msa_cpp.view's result has to.
        cu_seqlens_q: [R + 1] i32, starts at 0.
        cu_seqlens_k: of flat keys, which are refused; None.
        page_table: [R, W] i32, required: the index cache's.
        seqused_k: [R] i32, required: keys of each request, these query tokens' own included.
        causal: False scores all keys of a request for each of its tokens.
        max_seqlen_q: upper bound of a request's query tokens. Where R * max_seqlen_q = T, so that
            all requests have as many, the decode kernels serve up to 16 of them.
        max_k_tiles: blocks of the result; the longest request's where None and without ``output``,
            which reads ``seqused_k`` on the host and is refused under graph capture.
        output: [Hi, max_k_tiles, T] f32 ([1, max_k_tiles, T] with ``reduce_heads``), written in
            place and returned.
        reduce_heads: the largest over the index heads, by a second pass over the scores.
        q_offset: position of each request's first query token, an int or [R] i32; right-aligned
            where None. MSA_CHECK=1 reports any but right alignment, and ``causal=False``.
        use_fp32_acc: of e4m3 queries and keys alone: True sums exact products in f32; False takes
            Hopper's fp8 accumulator, whose error docs/numerics.md bounds and which does not
            overflow.
        workspace, stream: as in msa_cpp.index_scores.

    Returns: [Hi, max_k_tiles, T] f32, or [1, max_k_tiles, T]: -inf where a token sees no key of the
        block.

    Raises:
        Error: (a ValueError) lists every argument that is wrong; nothing is written then.

    Source: flashinfer.msa_ops.msa_proxy_score; msa_cpp.index_scores does the work.
    """
    rows, heads = extent(q, 0), extent(q, 1)
    with_heads = len(getattr(k, "shape", ())) != 3
    failures = _array_failures(q=(q, 3), cu_seqlens_q=(cu_seqlens_q, 1))
    failures += _paged_failures(
        k, page_table, seqused_k, cu_seqlens_k, dimensions=4 if with_heads else 3
    )
    failures += _offset_failures(q_offset)
    failures += _count_failures(max_seqlen_q=max_seqlen_q, max_k_tiles=max_k_tiles)
    if output is not None:
        failures += _array_failures(output=(output, 3))
    _refuse("msa_proxy_score", failures)
    key_heads = k.shape[1] if with_heads else 1
    if key_heads < 1 or heads % key_heads != 0:
        failures.append(f"argument 'k' has {key_heads} heads; allowed: a divisor of q's {heads}")
    if with_heads and not hasattr(k, "__getitem__"):
        failures.append(
            "argument 'k' is a view that cannot be cut into heads; allowed: an array, or a view of "
            "[pages, 128, 128]"
        )
    if output is not None and max_k_tiles is not None and output.shape[1] != max_k_tiles:
        failures.append(
            f"argument 'output' has {output.shape[1]} blocks; allowed: {max_k_tiles}, which "
            "'max_k_tiles' is"
        )
    lists = 1 if reduce_heads else heads
    if output is not None and output.shape[0] != lists:
        failures.append(f"argument 'output' has {output.shape[0]} heads; allowed: {lists}")
    if output is not None and reduce_heads:  # otherwise it is the library that looks at it
        failures += _reduced_output_failures(output, rows)
    _refuse("msa_proxy_score", failures)
    requests = seqused_k.shape[0]
    if output is not None:
        blocks = output.shape[1]
    elif max_k_tiles is not None:
        blocks = max_k_tiles
    else:
        blocks = -(-int(seqused_k.max()) // _PAGE) if requests > 0 else 0
    uniform = (
        max_seqlen_q is not None
        and requests * max_seqlen_q == rows
        and 1 <= max_seqlen_q <= _MAX_DECODE_QUERY_LEN
    )
    if uniform and causal and q_offset is None:
        batch = BatchMetadata(
            seqused_k, page_table, decode_query_len=max_seqlen_q, max_query_len=max_seqlen_q
        )
    else:
        # From position seqused_k on a token sees every key there is.
        first = _first_positions(q_offset, seqused_k, cu_seqlens_q) if causal else seqused_k
        batch = BatchMetadata(
            seqused_k,
            page_table,
            cu_seqlens_q=cu_seqlens_q,
            context_lens=first,
            num_decodes=0,
            num_prefills=requests,
            num_actual_tokens=rows,
            max_query_len=max_seqlen_q,
        )
    library = _library(seqused_k)
    scores = output
    if output is None or reduce_heads:
        scores = library.empty((heads, blocks, rows), **_float32(seqused_k))
    group = heads // key_heads
    try:
        for head in range(key_heads):
            own = slice(head * group, (head + 1) * group)
            index_scores(
                q if key_heads == 1 else q[:, own],
                k[:, head] if with_heads else k,
                batch,
                out=scores[own],
                exact=use_fp32_acc,
                workspace=workspace,
                stream=stream,
            )
    except Error as error:
        raise _in_terms_of("msa_proxy_score", error, _OF_SCORES, q_offset) from None
    if not reduce_heads:
        return scores
    if output is None:
        output = library.empty((1, blocks, rows), **_float32(seqused_k))
    library.amax(scores, 0, keepdims=True, out=output[:, :, :rows])
    return output


def msa_topk_select(
    max_score: Any,
    topk: int,
    num_valid_pages: int | Any | None = None,
    output: Any = None,
    force_begin_blocks: int = 0,
    force_end_blocks: int = 0,
    *,
    workspace: Any = None,
    stream: Any = None,
) -> Any:
    """The ``topk`` blocks of the largest scores, for each query token and head.

    Args:
        max_score: [H, blocks, T] f32, any strides.
        topk: blocks a token selects, 1 to 64.
        num_valid_pages: blocks that may be selected: [T] i32 for each token (clamped to
            [0, blocks], outside of which MSA_CHECK=1 reports them), an int from 1 to blocks for
            all of them, or None for all blocks. A block among them whose score is -inf is the last
            to be selected.
        output: [T, H, topk] i32, any strides, written in place and returned.
        force_begin_blocks: blocks from the first on that are always selected.
        force_end_blocks: blocks from a token's last valid one downwards that are always selected.
        workspace, stream: as in msa_cpp.select_blocks.

    Returns: [T, H, topk] i32: ids in ascending order, then -1. Equal scores go to the lower id, NaN
        comes after -inf.

    Raises:
        Error: (a ValueError) lists every argument that is wrong; nothing is written then.

    Source: flashinfer.msa_ops.msa_topk_select; msa_cpp.select_blocks does the work.
    """
    failures = _array_failures(max_score=(max_score, 3))
    if num_valid_pages is not None and not isinstance(num_valid_pages, Integral):
        failures += _array_failures(num_valid_pages=(num_valid_pages, 1))
    _refuse("msa_topk_select", failures)
    blocks, rows = max_score.shape[1], max_score.shape[2]
    if num_valid_pages is None or isinstance(num_valid_pages, Integral):
        if num_valid_pages is not None and not 0 < num_valid_pages <= blocks:
            _refuse(
                "msa_topk_select",
                [
                    f"argument 'num_valid_pages' is {num_valid_pages}; allowed: 1 to {blocks}, the "
                    "blocks of 'max_score'"
                ],
            )
        count = blocks if num_valid_pages is None else int(num_valid_pages)
        num_valid_pages = _library(max_score).full((rows,), count, **_int32(max_score))
    try:
        return select_blocks(
            max_score,
            num_valid_pages,
            topk=topk,
            out=output,
            init_blocks=force_begin_blocks,
            local_blocks=force_end_blocks,
            workspace=workspace,
            stream=stream,
        )
    except Error as error:
        raise _in_terms_of("msa_topk_select", error, _OF_CHOICE) from None


def _attend(function, *args, q_offset=None, **options):
    """_attend_as, whose errors speak of the arguments of `function`."""
    try:
        return _attend_as(*args, **options)
    except Error as error:
        raise _in_terms_of(function, error, _OF_ATTENTION, q_offset) from None


def _attend_as(
    q,
    k,
    v,
    q2k_indices,
    batch,
    *,
    causal,
    softmax_scale,
    return_softmax_lse,
    k_scale,
    v_scale,
    k_global_scale,
    v_global_scale,
    return_temperature_lse,
    lse_temperature_scale,
    workspace,
    out,
    lse_out,
    kv_dtype,
    stream,
):
    """attend, with FlashInfer's scales and results."""
    scale = _PAGE**-0.5 if softmax_scale is None else float(softmax_scale)
    if k_global_scale is not None:
        scale *= float(k_global_scale)
    if v_scale is None:
        v_scale = 1.0 if v_global_scale is None else float(v_global_scale)
    options = {
        "k_scale": 1.0 if k_scale is None else k_scale,
        "v_scale": v_scale,
        "kv_dtype": kv_dtype,
        "causal": causal,
        "workspace": None if isinstance(workspace, MSASparseAttentionWorkspace) else workspace,
        "stream": stream,
    }
    selection = q2k_indices.swapaxes(0, 1)
    if not (return_softmax_lse or return_temperature_lse):
        return attend(q, (k, v), selection, batch, out=out, softmax_scale=scale, **options)
    # Of the kind of the lengths: q may be a view, of which no framework makes another.
    library, of_lse = _library(batch.seq_lens), _float32(batch.seq_lens)
    lse_t = None
    if return_temperature_lse:  # first, so that the pass behind it leaves its result in out
        lse_t = library.empty(tuple(q.shape[:2]), **of_lse)
        cooled = scale * lse_temperature_scale
        out, _ = attend(
            q,
            (k, v),
            selection,
            batch,
            out=out,
            lse_out=lse_t,
            return_lse=True,
            softmax_scale=cooled,
            **options,
        )
    if lse_out is None:
        lse_out = library.empty(tuple(q.shape[:2]), **of_lse)
    out, _ = attend(
        q,
        (k, v),
        selection,
        batch,
        out=out,
        lse_out=lse_out,
        return_lse=True,
        softmax_scale=scale,
        **options,
    )
    return (out, lse_out, lse_t) if return_temperature_lse else (out, lse_out)


def _first_positions(q_offset, seqused_k, cu_seqlens_q):
    """[R] i32: the position of each request's first query token."""
    if q_offset is None:
        return seqused_k - (cu_seqlens_q[1:] - cu_seqlens_q[:-1])
    if isinstance(q_offset, Integral):
        return _library(seqused_k).full(tuple(seqused_k.shape), int(q_offset), **_int32(seqused_k))
    return q_offset


def _array_failures(**arrays):
    """Of ``name=(array, dimensions)``: what is no array, or one of other dimensions."""
    failures = []
    for name, (array, dimensions) in arrays.items():
        shape = getattr(array, "shape", None)
        if shape is None:
            failures.append(f"argument '{name}' is {described(array)}; allowed: an array of "
                            f"{dimensions} dimensions")
        elif len(shape) != dimensions:
            failures.append(f"argument '{name}' has shape {list(shape)}; allowed: {dimensions} "
                            "dimensions")
    return failures


def _number_failures(**numbers):
    """None, numbers, and arrays of one, which float() takes."""
    return [
        f"argument '{name}' is {value!r}; allowed: a number"
        + ("" if name == "lse_temperature_scale" else ", or None")
        for name, value in numbers.items()
        if not isinstance(value, Real)
        and not (hasattr(value, "__float__") and hasattr(value, "shape"))
        and not (value is None and name != "lse_temperature_scale")
    ]


def _count_failures(**counts):
    return [
        f"argument '{name}' is {value!r}; allowed: a whole number from 0 on, or None"
        for name, value in counts.items()
        if value is not None and not (isinstance(value, Integral) and int(value) >= 0)
    ]


def _offset_failures(q_offset):
    if q_offset is None or isinstance(q_offset, Integral):
        return []
    if len(getattr(q_offset, "shape", ())) == 1:
        return []
    return [f"argument 'q_offset' is {described(q_offset)}; allowed: None, an int, or [R] i32"]


def _reduced_output_failures(output, rows):
    failures = []
    if not str(output.dtype).endswith("float32"):
        failures.append(f"argument 'output' has dtype {output.dtype}; allowed: float32")
    if output.shape[2] < rows:
        failures.append(f"argument 'output' has {output.shape[2]} tokens; allowed: at least {rows}")
    if not getattr(getattr(output, "flags", None), "writeable", True):
        failures.append("argument 'output' is a read-only array; allowed: one that may be written")
    return failures


def _paged_failures(k, page_table, seqused_k, cu_seqlens_k, dimensions=4):
    failures = []
    if page_table is None:
        failures.append(
            "argument 'page_table' is None; allowed: [R, W] i32 (K and V lie in pages of 128 "
            "tokens)"
        )
    else:
        failures += _array_failures(page_table=(page_table, 2))
    if seqused_k is None:
        failures.append("argument 'seqused_k' is None; allowed: [R] i32")
    else:
        failures += _array_failures(seqused_k=(seqused_k, 1))
    shape = getattr(k, "shape", None)
    if shape is None:
        failures.append(f"argument 'k' is {described(k)}; allowed: [pages, heads, 128, 128]")
    elif len(shape) != dimensions:
        failures.append(
            f"argument 'k' has shape {list(shape)}; allowed: [pages, heads, 128, 128]"
        )
    if page_table is None and cu_seqlens_k is not None:
        failures.append(
            "argument 'cu_seqlens_k' is given; allowed: None (flat K and V are not served)"
        )
    return failures


def _selection_failures(q2k_indices, k, q):
    """The order of the first two dimensions cannot be guessed where they are equal, so it never
    is.
    """
    shape = getattr(q2k_indices, "shape", None)
    heads, tokens = extent(k, 1), extent(q, 0)
    if heads == 0 and shape is not None and len(shape) == 3:
        return []  # it is k that is wrong
    if shape is not None and len(shape) == 3 and shape[0] in (1, heads) and shape[1] >= tokens:
        return []
    what = f"is {described(q2k_indices)}" if shape is None else f"has shape {list(shape)}"
    return [
        f"argument 'q2k_indices' {what}; allowed: [Hs, T, topk] with Hs {heads} or 1 and T "
        f"{tokens} (a token-major buffer as its view .transpose(0, 1))"
    ]


def _scale_failures(k_scale, v_scale, v_global_scale):
    failures = []
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        shape = tuple(getattr(scale, "shape", ()))
        elements = 1
        for n in shape:
            elements *= n
        if elements != 1:
            failures.append(
                f"argument '{name}' has shape {list(shape)}; allowed: one f32 element (NVFP4 is "
                "not served)"
            )
    if v_scale is not None and v_global_scale is not None:
        failures.append(
            f"argument 'v_global_scale' is {v_global_scale}; allowed: None where 'v_scale' is given"
        )
    return failures


def _in_terms_of(function, error, names, q_offset=None):
    """An operator's error as one of `function`, with what its arguments are called there."""
    names = names if q_offset is None else {**names, "context_lens": "q_offset"}

    def renamed(match):
        return f"'{names.get(match[1], match[1])}{match[2]}"

    lines = [re.sub(r"^\w+: ", f"{function}: ", line) for line in error.failures]
    return Error("\n".join(re.sub(r"'(\w+)(['.])", renamed, line) for line in lines), error.code)


def _refuse(function, failures):
    if failures:
        raise Error("\n".join(f"{function}: {failure}" for failure in failures))


def _library(array):
    """The module that makes arrays of `array`'s kind; torch and numpy name alike what is used
    here.
    """
    module = type(array).__module__.partition(".")[0]
    if module == "torch":
        return sys.modules["torch"]
    if module in ("numpy", "cupy"):
        return sys.modules[module]
    raise Error(
        "msa_cpp.flashinfer makes arrays with torch, numpy or cupy alone, not with "
        f"{type(array).__name__}"
    )


def _typed(array, name):
    library = _library(array)
    made = {"dtype": getattr(library, name)}
    if library.__name__ == "torch":
        made["device"] = array.device
    return made


def _int32(array):
    return _typed(array, "int32")


def _float32(array):
    return _typed(array, "float32")
