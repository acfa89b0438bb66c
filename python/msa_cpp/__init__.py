# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""MiniMax-M3 block-sparse attention over paged KV caches, on CPUs and CUDA devices.

    import numpy as np
    import msa_cpp

    batch = msa_cpp.BatchMetadata(seq_lens, block_table)            # [R] i32, [R, W] i32
    selection = msa_cpp.index_blocks(index_q, index_cache, batch)   # [T, Hi, 16] i32
    out = msa_cpp.attend(q, kv_cache, selection, batch)             # [T, Hq, 128]

Nothing of torch, CUDA or an engine is imported here; the library loads at the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arrays import view
from ._batch import PAGE_SIZE, BatchMetadata
from ._info import backends, info, last_backend
from ._library import Error
from ._operators import (
    attend,
    attend_workspace_size,
    copy_pages,
    index_blocks,
    index_blocks_workspace_size,
    index_scores,
    index_scores_workspace_size,
    insert_cache,
    layer_step,
    layer_step_workspace_size,
    merge_states,
    select_blocks,
    select_blocks_workspace_size,
    write_cache,
)

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "PAGE_SIZE",
    "BatchMetadata",
    "Error",
    "__version__",
    "attend",
    "attend_workspace_size",
    "backends",
    "copy_pages",
    "index_blocks",
    "index_blocks_workspace_size",
    "index_scores",
    "index_scores_workspace_size",
    "info",
    "insert_cache",
    "last_backend",
    "layer_step",
    "layer_step_workspace_size",
    "merge_states",
    "select_blocks",
    "select_blocks_workspace_size",
    "view",
    "write_cache",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("msa-cpp")
        except PackageNotFoundError:  # a source tree with the library beside it
            from ._library import lib

            return lib.version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
