// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "msa/export.h"
#include "msa/kv_cache.h"
#include "msa/metadata.h"
#include "msa/tensor.h"

/// \file
/// attend: block-sparse softmax attention over the paged cache, decode and prefill.

namespace msa {

/// The part of the keys that this call's cache holds (context parallelism): the blocks b with
/// b mod world = rank, in table column b / world. Ids, lengths and visibility stay global.
struct KVShard {
  int rank = 0;   ///< this shard, 0 to world − 1
  int world = 1;  ///< shards of the keys
};

/// Arguments of attend. G = Hq / Hkv is 1 to 16; Hs is Hkv or 1.
struct AttendArgs {
  ConstTensor q;          // [≥ T, Hq, 128] bf16|f16, last stride 1
  ConstKVCache kv_cache;  // [pages, Hkv, 128, 256] bf16|f16|e4m3|e5m2, any strides
  ConstTensor selection;  // [≥ T, Hs, topk] i32: block ids, −1 anywhere = none; topk 1 to 64
  BatchMetadata batch;    // lengths, tables and counts of the step
  Tensor out;             // [≥ T, Hq, 128] bf16|f16, last stride 1; overlaps no input
  Tensor lse;             // [≥ T, Hq] f32, optional: natural log of Σ exp(scaled logit)

  float softmax_scale = 0.08838834764831845f;  ///< 128^-0.5
  Scale k_scale;                               ///< logits × k_scale (folded into softmax_scale)
  Scale v_scale;                               ///< output × v_scale
  bool causal = true;      ///< false: every row of a request sees all its seq_len keys
  bool invariant = false;  ///< true: prefill bits depend on the row's own q, selection, keys alone
  KVShard kv_shard;        ///< which blocks the cache holds

  std::size_t workspace_cap = default_workspace_cap;  ///< the call never asks for more, bytes
  Workspace workspace;                                // ≥ workspace_size(args) bytes
  Stream stream;                                      ///< where the call runs
};

/// For each row t < T and query head h: `out[t, h] = softmax(scaled logits) · V · v_scale` over the
/// visible keys of the row's selected blocks, as a set: order, −1, repeats and ids that are not
/// visible do not matter, down to the bits. A row without a key gets 0 and LSE −inf. Rows ≥ T are
/// neither read nor written.
///
/// \throws Error listing every argument that is wrong; nothing is written then.
/// Source: contract section 5; FlashInfer's msa_sparse_decode_attention, msa_sparse_attention.
MSA_API void attend(const AttendArgs& args);

/// Bytes of workspace that `attend(args)` needs on the backend that will serve it: a function of
/// shapes, types, bounds and the cap. The workspace, `out` and data pointers may still be missing.
/// \throws Error as attend does, for the arguments it looks at.
MSA_API std::size_t workspace_size(const AttendArgs& args);

}  // namespace msa
