# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""SGLang plug-in: MiniMax-M3's sparse prefill and decode served by msa.cpp.

SGLang finds `register` through the entry point `msa` of `sglang.srt.plugins` and calls it in every
process, then applies the hooks that it registered. The way through the package:

- `functions`: what takes the place of `minimax_sparse_prefill` and `minimax_sparse_decode`;
- `pages`: SGLang's slot pools and slot tables seen as pages and block tables.

Cache writes, metadata and model stay SGLang's. `MSA_SGLANG=0` switches the plug-in off.
"""

from __future__ import annotations

import logging

from msa_cpp import engines

__all__ = ["register"]

#: Below "sglang", whose handlers show it.
LOGGER_NAME = "sglang.msa_cpp"

#: Where SGLang's two functions and the backend that calls them are.
FUNCTIONS = "sglang.srt.layers.attention.minimax_sparse_ops.minimax_sparse"
BACKEND = "sglang.srt.layers.attention.minimax_sparse_backend.MiniMaxSparseAttnBackend"

#: The backend's methods that start a forward pass, eager, captured or replayed.
STEP_METHODS = ("init_forward_metadata_out_graph", "init_forward_metadata_in_graph")


def register() -> None:
    """Registers the hooks. May be called any number of times; never raises."""
    logger = logging.getLogger(LOGGER_NAME)
    if engines.switched_off("MSA_SGLANG"):
        logger.info("msa.cpp is switched off (MSA_SGLANG=0)")
        return
    try:
        from msa_cpp.sglang.functions import register_hooks

        register_hooks()
    except Exception:  # whatever is wrong with us, SGLang must start
        logger.warning("msa.cpp could not be registered; SGLang serves all layers", exc_info=True)
