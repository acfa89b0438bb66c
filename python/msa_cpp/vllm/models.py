# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""vLLM's MiniMax-M3 models, whose sparse layers are handed over once they are built.

The classes keep vLLM's names, which other parts of vLLM compare.
"""

from __future__ import annotations

import logging
from typing import Any

from vllm.models import minimax_m3

from msa_cpp.vllm import LOGGER_NAME

__all__ = ["MiniMaxM3MTP", "MiniMaxM3SparseForCausalLM"]


def _hand_over(model: Any, vllm_config: Any) -> None:
    """hand_over; whatever is wrong with us, the model is built, and its layers stay vLLM's."""
    try:
        from msa_cpp.vllm.layers import hand_over

        hand_over(model, vllm_config)
    except Exception:
        logging.getLogger(LOGGER_NAME).warning(
            "msa.cpp could not take over the sparse layers; those it has not taken are vLLM's",
            exc_info=True,
        )


class MiniMaxM3SparseForCausalLM(minimax_m3.MiniMaxM3SparseForCausalLM):
    """The language model."""

    # vLLM looks for these two names in the signature before it calls.
    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        _hand_over(self, vllm_config)


class MiniMaxM3MTP(minimax_m3.MiniMaxM3MTP):
    """The draft model of multi-token prediction."""

    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        _hand_over(self, vllm_config)
