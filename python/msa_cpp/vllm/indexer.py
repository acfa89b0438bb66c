# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The indexer of a sparse layer, and the backend of its cache: vLLM's own with `index_blocks`."""

from __future__ import annotations

from typing import Any

from vllm.models.minimax_m3.common.indexer import MiniMaxM3IndexerBackend, MiniMaxM3IndexerImpl

import msa_cpp
from msa_cpp import engines
from msa_cpp.vllm.context import step_metadata


class MsaIndexerBackend(MiniMaxM3IndexerBackend):
    """The index cache with the metadata of vLLM's generic indexer: both phases, no score buffer."""

    @staticmethod
    def get_impl_cls() -> type[MsaIndexerImpl]:
        return MsaIndexerImpl


class MsaIndexerImpl(MiniMaxM3IndexerImpl):
    """Scores the visible blocks of each row and writes the best ones to the shared buffer."""

    indexer_backend_cls = MsaIndexerBackend

    @classmethod
    def adopt(cls, impl: MiniMaxM3IndexerImpl) -> MsaIndexerImpl:
        """An indexer with all that vLLM gave `impl`, its index cache among it.

        The cache is the same object: it is registered with vLLM under its name, and there must be
        one only. Its backend is exchanged, since the metadata must have both phases.
        """
        ours = cls.__new__(cls)
        vars(ours).update(vars(impl))
        ours.index_cache.backend_cls = cls.indexer_backend_cls
        return ours

    def forward(self, index_query: Any, **of_later_versions: Any) -> tuple[Any, Any]:
        """Writes rows < T of `topk_indices_buffer`; returns its decode and prefill rows.

        index_query `[≥ T, Hi · 128]` of the index cache's type. The returned views are head-major
        `[Hi, rows, topk]`, None for a phase without rows and in a profiling run. Raises
        msa_cpp.Error naming every argument that is wrong.

        Source: MiniMaxM3IndexerTritonImpl.forward of vLLM.
        """
        metadata = step_metadata(self.index_cache.prefix)
        if metadata is None:
            return None, None
        index_q = engines.by_heads(index_query, self.num_index_heads)
        chosen: dict[str, Any] = {}
        for phase in engines.phases(metadata):
            rows = self.topk_indices_buffer[phase.rows]
            msa_cpp.index_blocks(
                index_q[phase.rows],
                self.index_cache.kv_cache,
                phase.batch,
                topk=self.topk_blocks,
                out=rows,
                init_blocks=self.init_blocks,
                local_blocks=self.local_blocks,
            )
            chosen[phase.name] = rows.swapaxes(0, 1)
        return chosen.get("decode"), chosen.get("prefill")
