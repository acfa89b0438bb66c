# Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
"""FlashInfer's msa_ops (0.7.4 or later) where it is installed: on Hopper an e4m3 cache, bf16 queries, no LSE."""
NAME = "flashinfer"


class Peer:
    name = NAME
    # 0.7.4 reads wrong pages of a pool past 2 GiB: its times stand, its results need not.
    must_be_right = False

    def __init__(self, torch):
        import flashinfer
        from flashinfer.msa_ops import msa_sparse_decode_attention
        self.attend = msa_sparse_decode_attention
        self.version = f"FlashInfer {flashinfer.__version__}"

    def call(self, q, kv, ids, table, lengths, m, out):
        """A closure that runs one decode attend; the head-major copy of the ids that it needs is made before."""
        head_major = ids.transpose(0, 1).contiguous()
        half = kv.shape[-1] // 2
        return lambda: self.attend(q, kv[..., :half], kv[..., half:], head_major, page_table=table, seqused_k=lengths,
                                   seqlen_q=m, causal=True, out=out)
