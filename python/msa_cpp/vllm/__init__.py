# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""vLLM plug-in: MiniMax-M3's sparse attention layers served by msa.cpp.

vLLM finds `register` through the entry point `msa` of `vllm.general_plugins` and calls it in every
process. It names our subclasses of the model classes in vLLM's registry; nothing else happens until
a MiniMax-M3 model is built. The way through the package:

- `models`: vLLM's model classes, which hand their sparse layers over once they are built;
- `layers`: which layers msa.cpp serves, which it leaves to vLLM and why, in one log line;
- `attention`: the attention backend and its impl (`attend`);
- `indexer`: the indexer's backend and impl (`index_blocks`).

Registering an attention backend alone would change nothing: MiniMax-M3's layers choose theirs when
they are built, without looking at the registry. `MSA_VLLM=0` switches the plug-in off.
"""

from __future__ import annotations

import logging

from msa_cpp import engines

__all__ = ["register"]

#: Below "vllm", whose handlers show it; a logger of our own name would be silent in vLLM.
LOGGER_NAME = "vllm.msa_cpp"

#: Architectures with sparse layers, named in vLLM's registry as in checkpoints. The multimodal
#: class builds its language model through the registry, so that it needs no entry.
ARCHITECTURES = ("MiniMaxM3SparseForCausalLM", "MiniMaxM3MTP")


def register() -> None:
    """Overrides vLLM's MiniMax-M3 classes. May be called any number of times; never raises."""
    logger = logging.getLogger(LOGGER_NAME)
    if engines.switched_off("MSA_VLLM"):
        logger.info("msa.cpp is switched off (MSA_VLLM=0)")
        return
    try:
        # By name, not by class: importing the model would be the wrong thing in vLLM's front end,
        # and could start CUDA in a process that forks.
        from vllm import ModelRegistry

        known = ModelRegistry.get_supported_archs()
        for architecture in ARCHITECTURES:
            if architecture in known:
                ModelRegistry.register_model(architecture, f"msa_cpp.vllm.models:{architecture}")
            else:
                logger.info("msa.cpp: this vLLM has no %s", architecture)
    except Exception:  # whatever is wrong with us, vLLM must start
        logger.warning("msa.cpp could not be registered; vLLM serves all layers", exc_info=True)
