# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""The attention backend of a sparse layer, and its impl: vLLM's own with `attend` inside."""

from __future__ import annotations

from typing import Any

from vllm.models.minimax_m3.common.sparse_attention import (
    MiniMaxM3SparseBackend,
    MiniMaxM3SparseImpl,
)

import msa_cpp
from msa_cpp import engines
from msa_cpp.vllm.context import batch_invariant, step_metadata

#: Physical orders of the cache, best first: a head's page in one piece, then a page in one piece,
#: then the rest. `attend` reads any strides; the order is a preference, not a limit.
LAYOUTS = ("LBHNC", "LBNHC", "BLHNC", "BLNHC", "LHBNC", "BHLNC")


class MsaSparseBackend(MiniMaxM3SparseBackend):
    """vLLM's backend of MiniMax-M3 with its name, metadata builder and cache; another impl."""

    @staticmethod
    def get_impl_cls() -> type[MsaSparseImpl]:
        return MsaSparseImpl

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[Any, ...]:
        """The layouts of this vLLM that `attend` serves, which is all it is known to have."""
        from vllm.v1.kv_cache_interface import KVCacheLayout

        return tuple(KVCacheLayout[name] for name in LAYOUTS if name in KVCacheLayout.__members__)

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True


class MsaSparseImpl(MiniMaxM3SparseImpl):
    """Attention of one layer over the blocks that the indexer selected."""

    # What context parallelism asks an impl for: `lse_out` of forward, in natural logarithms.
    can_return_lse_for_decode = True
    lse_base_on_e = True

    @classmethod
    def adopt(cls, impl: MiniMaxM3SparseImpl) -> MsaSparseImpl:
        """An impl with all that vLLM gave `impl`, whatever this vLLM's constructor takes.

        Left out is `use_cutlass_decode`, which would make the layer quantize q for a kernel that
        is not called any more.
        """
        ours = cls.__new__(cls)
        theirs = {name: v for name, v in vars(impl).items() if name != "use_cutlass_decode"}
        vars(ours).update({**theirs, **vars(ours)})
        return ours

    def forward(
        self,
        layer: Any,
        query: Any,
        kv_cache: Any,
        output: Any,
        *,
        query_fp8: Any = None,
        lse_out: Any = None,
        **of_later_versions: Any,
    ) -> Any:
        """Writes rows < T of `output` in place and returns it.

        query, output `[≥ T, Hq · 128]` bf16 | f16; kv_cache `[pages, Hkv, 128, 256]` of any
        strides, fp8 as bytes too; `layer` gives the metadata's name, the selection
        `topk_indices_buffer` `[≥ T, Hs, topk]` and, for an fp8 cache, the scales. `query_fp8` is q
        in e4m3, to be multiplied by the layer's q scale; `query` then is scratch. `lse_out`
        `[≥ T, Hq]` f32 takes the natural log of each row's sum. No metadata (a profiling run):
        output is untouched. Raises msa_cpp.Error naming every argument that is wrong.

        Source: MiniMaxM3SparseFlashInferImpl.forward of vLLM.
        """
        metadata = step_metadata(layer.layer_name)
        if metadata is None:
            return output
        if query_fp8 is not None:
            query.copy_(query_fp8).mul_(getattr(layer, "_q_scale_float", 1.0))
        q = engines.by_heads(query, self.num_heads)
        out = engines.by_heads(output, self.num_heads)
        selection = layer.topk_indices_buffer
        kind = engines.fp8_kind(self.kv_cache_dtype)
        scales = (
            {}
            if kind is None
            else {
                name: engines.layer_scale(layer, name, kv_cache) for name in ("k_scale", "v_scale")
            }
        )
        for phase in engines.phases(metadata):
            rows = phase.rows
            msa_cpp.attend(
                q[rows],
                kv_cache,
                selection[rows],
                phase.batch,
                out=out[rows],
                lse_out=None if lse_out is None else lse_out[rows],
                softmax_scale=self.scale,
                kv_dtype=kind,
                invariant=batch_invariant(),
                **scales,
            )
        return output
