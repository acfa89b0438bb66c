# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""Hands a model's sparse layers over: which ones msa.cpp serves, which stay vLLM's, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from vllm.logger import init_logger
from vllm.models.minimax_m3.common.indexer import MiniMaxM3IndexerImpl
from vllm.models.minimax_m3.common.sparse_attention import MiniMaxM3SparseImpl
from vllm.platforms import current_platform

import msa_cpp
from msa_cpp import engines
from msa_cpp.vllm import LOGGER_NAME
from msa_cpp.vllm.attention import MsaSparseBackend, MsaSparseImpl
from msa_cpp.vllm.indexer import MsaIndexerImpl

logger = init_logger(LOGGER_NAME)


def hand_over(model: Any, vllm_config: Any) -> None:
    """Exchanges backend, impl and indexer of each sparse layer of a model that was just built.

    Attend and indexer are looked at one by one: where one of them cannot be served, the other still
    is, since both sides keep the selection in the same buffer in the same order. The log line at
    the end is how a user sees that the plug-in is at work.
    """
    backend = engines.serving_backend(_device_type(vllm_config))
    why_none = _model_refusals(vllm_config)
    attend, index = _Tally(), _Tally()
    selection = None
    for layer in _sparse_layers(model):
        if layer.topk_indices_buffer is None:
            # vLLM gives its draft model none. One serves all layers, as they run one by one.
            selection = _selection_buffer(layer, vllm_config) if selection is None else selection
            layer.topk_indices_buffer = layer.indexer.impl.topk_indices_buffer = selection
        attend.count(_refusals(layer, _attend_refusals, backend, why_none) or _exchange(layer))
        index.count(
            _refusals(layer, _index_refusals, backend, why_none) or _exchange_indexer(layer)
        )
    logger.info(
        "msa.cpp %s (%s): indexer of decode and prefill serves %s; attend of decode and prefill "
        "serves %s; the cache is written by vLLM",
        msa_cpp.__version__,
        backend or "no backend",
        index,
        attend,
    )


def _sparse_layers(model: Any) -> Iterator[Any]:
    for module in model.modules():
        indexer = getattr(module, "indexer", None)
        if isinstance(getattr(module, "impl", None), MiniMaxM3SparseImpl) and isinstance(
            getattr(indexer, "impl", None), MiniMaxM3IndexerImpl
        ):
            yield module


class _Tally:
    """How many layers are served, and how many are left to vLLM for which reasons."""

    def __init__(self) -> None:
        self.served = 0
        self.left: Counter[str] = Counter()

    def count(self, refusals: list[str]) -> None:
        if refusals:
            self.left["; ".join(refusals)] += 1
        else:
            self.served += 1

    def __str__(self) -> str:
        total = self.served + sum(self.left.values())
        left = "".join(f", {n} left to vLLM: {why}" for why, n in self.left.items())
        return f"{self.served} of {total} sparse layers{left}"


def _guarded(step: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """A later vLLM may have other names than those that msa.cpp asks for: its layers stay its own,
    and the log says what was missing.
    """

    @wraps(step)
    def guarded(*args: Any) -> list[str]:
        try:
            return step(*args)
        except Exception as error:
            return [f"not the vLLM that msa.cpp knows ({type(error).__name__}: {error})"]

    return guarded


@_guarded
def _refusals(
    layer: Any, asked: Callable[[Any], list[str]], backend: str | None, why_none: list[str]
) -> list[str]:
    """Why one side of a layer stays vLLM's, by what `asked` says of it; empty where it does not."""
    impl = layer.impl if asked is _attend_refusals else layer.indexer.impl
    return why_none + asked(layer) + _better_served(impl, backend)


@_guarded
def _exchange(layer: Any) -> list[str]:
    layer.impl, layer.attn_backend = MsaSparseImpl.adopt(layer.impl), MsaSparseBackend
    return []


@_guarded
def _exchange_indexer(layer: Any) -> list[str]:
    layer.indexer.impl = MsaIndexerImpl.adopt(layer.indexer.impl)
    return []


def _device_type(vllm_config: Any) -> str:
    return str(vllm_config.device_config.device_type)


@_guarded
def _model_refusals(vllm_config: Any) -> list[str]:
    """What keeps msa.cpp from serving any layer of this configuration."""
    if current_platform.is_rocm():
        return ["ROCm"]
    why = engines.device_refusals(_device_type(vllm_config))
    speculative = vllm_config.speculative_config
    drafts = 0 if speculative is None else speculative.num_speculative_tokens or 0
    if 1 + drafts > engines.MAX_DECODE_QUERY_LEN:
        why.append(f"{drafts} draft tokens (up to {engines.MAX_DECODE_QUERY_LEN - 1})")
    return why


def _impl_refusals(impl: Any) -> list[str]:
    # Context parallelism shards the index cache too, and index_blocks needs all of it. vLLM then
    # says that its own impl cannot do it either, instead of our selecting from a part.
    ranks = getattr(impl, "dcp_world_size", 1) * getattr(impl, "pcp_world_size", 1)
    return [f"context parallelism over {ranks} ranks"] if ranks > 1 else []


def _better_served(impl: Any, backend: str | None) -> list[str]:
    """Where vLLM chose kernels made for the device, the portable ones are no gain."""
    if backend == "portable" and "Triton" not in type(impl).__name__:
        return [
            f"{type(impl).__name__} is made for this device, msa.cpp's portable kernels are not"
        ]
    return []


def _ask_for(owner: Any, *names: str) -> None:
    """AttributeError for what a step would read and this vLLM does not have."""
    for name in names:
        getattr(owner, name)


def _attend_refusals(layer: Any) -> list[str]:
    impl = layer.impl
    _ask_for(layer, "layer_name", "topk_indices_buffer", "attn_backend")
    _ask_for(impl, "scale")
    return _impl_refusals(impl) + engines.attend_refusals(
        heads=impl.num_heads,
        kv_heads=impl.num_kv_heads,
        head_size=impl.head_size,
        block_size=impl.block_size,
        topk=impl.topk_blocks,
        cache_dtype=str(impl.kv_cache_dtype),
    )


def _index_refusals(layer: Any) -> list[str]:
    impl = layer.indexer.impl
    _ask_for(impl, "init_blocks", "local_blocks", "topk_indices_buffer")
    _ask_for(impl.index_cache, "prefix", "kv_cache", "backend_cls")
    return _impl_refusals(layer.impl) + engines.index_refusals(
        index_heads=impl.num_index_heads,
        kv_heads=impl.num_kv_heads,
        head_size=impl.index_head_dim,
        block_size=impl.block_size,
        topk=impl.topk_blocks,
        score_type=impl.score_type,
        cache_dtype=str(impl.indexer_kv_dtype),
    )


def _selection_buffer(layer: Any, vllm_config: Any) -> Any:
    """`[max tokens of a step, rounded up to 4; Hi; topk]` i32, as vLLM's model makes it."""
    import torch  # here alone: the rest of the plug-in needs only what its tensors can do

    rows = (vllm_config.scheduler_config.max_num_batched_tokens + 3) // 4 * 4
    impl = layer.indexer.impl
    shape = (rows, impl.num_index_heads, impl.topk_blocks)
    return torch.empty(shape, dtype=torch.int32, device=layer._k_scale.device)
