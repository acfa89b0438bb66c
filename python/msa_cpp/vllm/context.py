# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""What vLLM's forward context and environment tell a layer."""

from __future__ import annotations

from typing import Any

from vllm import envs
from vllm.forward_context import get_forward_context


def step_metadata(layer_name: str) -> Any | None:
    """The step's metadata of a layer, or None in a profiling run, which has none and no caches.

    Raises KeyError for a layer that the step does not know.
    """
    by_layer = get_forward_context().attn_metadata
    return by_layer[layer_name] if isinstance(by_layer, dict) else None


def batch_invariant() -> bool:
    """Whether vLLM was asked for rows whose bits do not depend on their neighbours."""
    return bool(getattr(envs, "VLLM_BATCH_INVARIANT", False))
