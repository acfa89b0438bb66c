# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""vLLM's MiniMax-M3 models, whose sparse layers are handed over once they are built.

The classes keep vLLM's names, which other parts of vLLM compare.
"""

from __future__ import annotations

from vllm.models import minimax_m3

from msa_cpp.vllm.layers import hand_over

__all__ = ["MiniMaxM3MTP", "MiniMaxM3SparseForCausalLM"]


class MiniMaxM3SparseForCausalLM(minimax_m3.MiniMaxM3SparseForCausalLM):
    """The language model."""

    # vLLM looks for these two names in the signature before it calls.
    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        hand_over(self, vllm_config)


class MiniMaxM3MTP(minimax_m3.MiniMaxM3MTP):
    """The draft model of multi-token prediction."""

    def __init__(self, *, vllm_config, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        hand_over(self, vllm_config)
