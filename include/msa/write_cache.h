// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/export.h"
#include "msa/kv_cache.h"
#include "msa/tensor.h"

/// \file
/// write_cache: norm, rotary embedding and cache insert of one step's tokens; insert_cache: the
/// insert alone.

namespace msa {

/// Arguments of write_cache. Hq = q_out.shape[1], Hkv = the cache's, Hi = index_q_out.shape[1] or 0
/// where index_q_out is not given; the index arguments are given all together or not at all.
struct WriteCacheArgs {
  ConstTensor qkv;  // [≥ T, (Hq + 2·Hkv + (Hi > 0 ? Hi + 1 : 0))·128] bf16|f16, last stride 1,
                    // in the order q | k | v | index_q | index_k
  ConstTensor positions;  // [≥ T] i64: rows of cos_sin
  ConstTensor cos_sin;    // [max_pos, 64] bf16|f16|f32: cos in columns 0..31, sin in 32..63

  ConstTensor q_norm;        // [128] bf16|f16|f32: Gemma RMSNorm weight w, applied as (1 + w)
  ConstTensor k_norm;        // [128]
  ConstTensor index_q_norm;  // [128]
  ConstTensor index_k_norm;  // [128]
  float norm_eps = 1e-6f;    ///< added to the mean square

  ConstTensor slot_mapping;  // [≥ T] i64: page · 128 + offset in the main cache; < 0 = skip
  ConstTensor index_slot_mapping;  // [≥ T] i64: the same in the index cache

  Tensor q_out;        // [≥ T, Hq, 128] of qkv's type, last stride 1
  KVCache kv_cache;    // [pages, Hkv, 128, 256] bf16|f16|e4m3|e5m2
  Tensor index_q_out;  // [≥ T, Hi, 128] of index_cache's type or of qkv's
  Tensor index_cache;  // [pages, 128, 128] bf16|e4m3

  Scale k_scale;                ///< the cache holds k / k_scale
  Scale v_scale;                ///< the cache holds v / v_scale
  std::int64_t num_tokens = 0;  ///< T
  Stream stream;                ///< where the call runs
};

/// For each token t < T: q, k, index_q and index_k pass a Gemma RMSNorm over their 128 elements and
/// a NeoX rotation of elements (i, i + 32), i < 32, in f32 with one rounding at the end; v is kept
/// as it is. q and index_q go to their outputs, k and v to the main cache, index_k to the index
/// cache. fp8 caches take x / scale, round to nearest even, saturate, and keep NaN. A slot that is
/// negative is skipped; a slot named twice is the caller's error. A slot or position past the end
/// is skipped like a negative slot (a position: nothing of the token is written), and reported
/// under MSA_CHECK=1.
///
/// \throws Error listing every argument that is wrong; nothing is written then.
/// Source: contract section 6.
MSA_API void write_cache(const WriteCacheArgs& args);

/// Arguments of insert_cache: k, v and index_k as they are. The main or the index part may be left
/// out as a whole.
struct InsertCacheArgs {
  ConstTensor k;             // [≥ T, Hkv, 128] bf16|f16, last stride 1
  ConstTensor v;             // [≥ T, Hkv, 128], of k's type
  ConstTensor slot_mapping;  // [≥ T] i64
  KVCache kv_cache;          // [pages, Hkv, 128, 256]

  ConstTensor index_k;             // [≥ T, 128] bf16|f16, last stride 1
  ConstTensor index_slot_mapping;  // [≥ T] i64
  Tensor index_cache;              // [pages, 128, 128] bf16|e4m3

  Scale k_scale;                ///< the cache holds k / k_scale
  Scale v_scale;                ///< the cache holds v / v_scale
  std::int64_t num_tokens = 0;  ///< T
  Stream stream;                ///< where the call runs
};

/// The insert of write_cache without norm and rotation.
MSA_API void insert_cache(const InsertCacheArgs& args);

}  // namespace msa
