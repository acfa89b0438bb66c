# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What takes the place of SGLang's `minimax_sparse_prefill` and `minimax_sparse_decode`.

Both select blocks and attend to them. They are told what to do by some thirty arguments, which
change from version to version; `SparseFunction` reads them by SGLang's own names and passes a call
that msa.cpp cannot serve on as it came.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

import msa_cpp
from msa_cpp import engines
from msa_cpp.sglang import BACKEND, FUNCTIONS, LOGGER_NAME, STEP_METHODS
from msa_cpp.sglang.pages import StepBatches, decode_batch, paged, prefill_batch

logger = logging.getLogger(LOGGER_NAME)
step_batches = StepBatches()

#: What a version of SGLang may not know yet, or not any more; None = it does not ask for it.
OPTIONAL = dict.fromkeys(
    (
        "cached_topk_idx",
        "hisparse_swap_in_fn",
        "idx_sink",
        "k_scale",
        "loc_mapping",
        "q_scale",
        "return_topk_idx",
        "sink",
        "sm_scale",
        "topk_out",
        "use_msa",
        "v_scale",
    )
)

_READ = (
    "block_size_k",
    "disable_index_value",
    "idx_k_cache",
    "idx_q",
    "init_blocks",
    "k_cache",
    "local_blocks",
    "page_size",
    "q",
    "req_to_token",
    "score_type",
    "seq_lens",
    "slot_ids",
    "topk",
    "v_cache",
)

#: What is read of a call beside that, by what serves it. A later SGLang that has it no more, or
#: under another name, keeps the call.
READ = {
    "prefill": (*_READ, "cu_seqlens", "max_seqlen_k", "max_seqlen_q", "prefix_lens"),
    "decode": (*_READ, "max_seqlen"),
}


@cache
def register_hooks() -> None:
    """Names our functions, and the places where a pass starts, in SGLang's hook registry; once."""
    functions = importlib.import_module(FUNCTIONS)
    for name, serve in (("minimax_sparse_prefill", prefill), ("minimax_sparse_decode", decode)):
        hook = SparseFunction(getattr(functions, name), serve, READ[serve.__name__])
        HookRegistry.register(f"{FUNCTIONS}.{name}", hook, HookType.REPLACE)
    module, backend_name = BACKEND.rsplit(".", 1)
    backend = getattr(importlib.import_module(module), backend_name)
    starts = [method for method in STEP_METHODS if hasattr(backend, method)]
    for method in starts:
        HookRegistry.register(f"{BACKEND}.{method}", step_batches.forget, HookType.AFTER)
    step_batches.keep = len(starts) == len(STEP_METHODS)


class SparseFunction:
    """One of SGLang's functions, with SGLang's own for what msa.cpp does not serve."""

    def __init__(
        self,
        original: Callable[..., Any],
        serve: Callable[[Any], Any],
        read: tuple[str, ...] = _READ,
    ) -> None:
        parameters = inspect.signature(original).parameters
        self.original = original
        self.serve = serve
        self.read = read
        self.names = tuple(parameters)
        self.defaults = {
            name: p.default for name, p in parameters.items() if p.default is not p.empty
        }
        self.said: set[tuple[str, ...]] = set()  # each thing is logged once

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = {**OPTIONAL, **self.defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
        call = SimpleNamespace(**given)
        missing = [name for name in self.read if name not in given]
        why: tuple[str, ...]
        if missing:
            why = (f"its call has no {', '.join(missing)}: not the SGLang that msa.cpp knows",)
        else:
            why = refusals(call)
        if why not in self.said:
            self.said.add(why)
            self._log(why, given)
        return self.original(*args, **kwargs) if why else self.serve(call)

    def _log(self, why: tuple[str, ...], given: dict[str, Any]) -> None:
        name = self.original.__name__
        if why:
            logger.info("%s is left to SGLang: %s", name, "; ".join(why))
        else:
            backend = engines.serving_backend(given["q"].device.type)
            version = msa_cpp.__version__
            logger.info("%s: msa.cpp %s (%s) selects and attends", name, version, backend)


def refusals(call: Any) -> tuple[str, ...]:
    """Why msa.cpp cannot serve a call; empty where it can."""
    why = []
    if call.sink is not None or call.idx_sink is not None:
        why.append("attention sinks")
    if not call.disable_index_value:
        why.append("an indexer with values")
    if call.loc_mapping is not None:
        why.append("slots mapped by HiSparse")
    if call.hisparse_swap_in_fn is not None:
        why.append("blocks swapped in by HiSparse")
    if call.use_msa and engines.serving_backend(call.q.device.type) == "portable":
        why.append("fmha_sm100 is made for this device, msa.cpp's portable kernels are not")
    shared = call.cached_topk_idx is not None  # an earlier layer's selection, head-major
    return tuple(why) + _shape_refusals(
        q=call.q.shape[1:],
        k=call.k_cache.shape[1:],
        index_heads=call.k_cache.shape[1] if shared else call.idx_q.shape[1],
        index_head_size=call.idx_q.shape[2],
        page_size=call.page_size,
        block_size=call.block_size_k,
        topk=call.topk,
        score_type=call.score_type,
        cache_dtype=str(call.k_cache.dtype).removeprefix("torch."),
        index_cache_dtype=str(call.idx_k_cache.dtype).removeprefix("torch."),
        device_type=call.q.device.type,
    )


@lru_cache(maxsize=64)
def _shape_refusals(
    *,
    q: tuple[int, int],
    k: tuple[int, int],
    index_heads: int,
    index_head_size: int,
    page_size: int,
    block_size: int,
    topk: int,
    score_type: str,
    cache_dtype: str,
    index_cache_dtype: str,
    device_type: str,
) -> tuple[str, ...]:
    why = engines.device_refusals(device_type)
    if page_size != engines.PAGE:
        why.append(f"page size {page_size} ({engines.PAGE}: --page-size {engines.PAGE})")
    why += engines.attend_refusals(
        heads=q[0],
        kv_heads=k[0],
        head_size=q[1],
        block_size=block_size,
        topk=topk,
        cache_dtype=cache_dtype,
    )
    why += engines.index_refusals(
        index_heads=index_heads,
        kv_heads=k[0],
        head_size=index_head_size,
        block_size=block_size,
        topk=topk,
        score_type=score_type,
        cache_dtype=index_cache_dtype,
    )
    return tuple(dict.fromkeys(why))


def prefill(call: Any) -> tuple[Any, ...]:
    """minimax_sparse_prefill: (None, out), and the selection `[Hs, T, topk]` where it is asked for.

    Source: minimax_sparse_prefill of SGLang.
    """
    batch = step_batches.of(call, prefill_batch)
    selection = _selection(call, batch, call.cached_topk_idx, None)
    out = _attend(call, batch, selection)
    return (None, out, selection) if call.return_topk_idx else (None, out)


def decode(call: Any) -> tuple[Any, ...]:
    """minimax_sparse_decode: (None, out); `topk_out` `[Hs, T, topk]` takes the selection.

    Source: minimax_sparse_decode of SGLang.
    """
    batch = step_batches.of(call, decode_batch)
    selection = _selection(call, batch, call.cached_topk_idx, call.topk_out)
    return None, _attend(call, batch, selection)


def _selection(call: Any, batch: msa_cpp.BatchMetadata, shared: Any, buffer: Any) -> torch.Tensor:
    """The selection, head-major `[Hs, T, topk]` i32 as SGLang keeps it: shared, or made now."""
    if shared is not None:
        return shared
    tokens, heads = call.idx_q.shape[:2]
    if buffer is None:
        buffer = call.idx_q.new_empty((heads, tokens, call.topk), dtype=torch.int32)
    msa_cpp.index_blocks(
        call.idx_q,
        paged(call.idx_k_cache).squeeze(1),
        batch,
        topk=call.topk,
        out=buffer.transpose(0, 1),
        init_blocks=call.init_blocks,
        local_blocks=call.local_blocks,
    )
    return buffer


def _attend(call: Any, batch: msa_cpp.BatchMetadata, selection: torch.Tensor) -> torch.Tensor:
    """Attends to head-major selections over the two pools, scales as SGLang gives them."""
    q, scale = call.q, call.q.shape[2] ** -0.5 if call.sm_scale is None else call.sm_scale
    if q.dtype == torch.float8_e4m3fn:  # exact in bf16; its scale folds into the softmax's
        q, scale = q.to(torch.bfloat16), scale * (1.0 if call.q_scale is None else call.q_scale)
    return msa_cpp.attend(
        q,
        (paged(call.k_cache), paged(call.v_cache)),
        selection.transpose(0, 1),
        batch,
        out=torch.empty_like(q),
        softmax_scale=scale,
        k_scale=1.0 if call.k_scale is None else call.k_scale,
        v_scale=1.0 if call.v_scale is None else call.v_scale,
        kv_dtype=engines.fp8_kind(str(call.k_cache.dtype)),
    )
