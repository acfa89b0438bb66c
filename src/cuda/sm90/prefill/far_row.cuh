// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/convert.cuh"
#include "cuda/common/query_row.cuh"
#include "cuda/common/row_out.cuh"
#include "cuda/common/softmax.cuh"
#include "cuda/sm90/prefill/tile.cuh"

/// \file
/// A row whose reference was ever too large for Math::weigh (2^14, f16 products 2^13), by one warp
/// and from memory: slow, and rare. Which rows come here depends on their own logits alone.

namespace msa::cuda::sm90::prefill {

constexpr ptx::Operand product_of(DType type) {
  return type == DType::bf16 ? ptx::Operand::bf16 : ptx::Operand::f16;
}

/// Computes and writes a row of out and LSE. `own`: the row's place among the 64 of `queries`.
template <DType type>
__device__ __noinline__ void compute_far_row(const Params& p, const Tile& tile,
                                             const TileList& list, const TileRow& row,
                                             const unsigned char* queries, int own, float factor) {
  constexpr DType product = type == DType::bf16 ? DType::bf16 : DType::f16;
  constexpr int lane_keys = page_size / warp_size;
  constexpr int lane_elements = head_dim / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int32_t visible = tile.visible(p, tile.seq_len, row.own_token);
  Stats stats = no_keys();
  float o[lane_elements] = {};
  for (int i = 0; i < list.length; ++i) {
    if ((list.blocks.rows[i] >> row.own_token & 1) == 0) continue;
    const int keys = min(visible - list.blocks.id[i] * page_size, page_size);
    const std::int64_t page = list.page[i];
    const char* k = p.k.data + page * p.k.page + tile.head * p.k.head;
    const char* v = p.v.data + page * p.v.page + tile.head * p.v.head;
    float x[lane_keys];
    float largest = -INFINITY;
#pragma unroll
    for (int t = 0; t < lane_keys; ++t) {
      const int key = lane + t * warp_size;
      x[t] = -INFINITY;
      if (key >= keys) continue;
      float dot = 0;
#pragma unroll 1
      for (int d = 0; d < head_dim; ++d) {
        const auto q =
            *reinterpret_cast<const std::uint16_t*>(queries + operand_offset<group_rows>(own, d));
        dot = __fmaf_rn(to_f32<product>(q), load<type>(k + key * p.k.token, d), dot);
      }
      x[t] = __fmul_rn(dot, factor);
      largest = fmaxf(largest, x[t]);
    }
    const float before = stats.x;
    stats.x = fmaxf(warp_max(largest), before);
    const float shift = shift_of(stats.x), shrink = exp2_fast(before - shift);
    float total = 0;
#pragma unroll
    for (int t = 0; t < lane_keys; ++t) {
      x[t] = exp2_fast(__fadd_rn(x[t], -shift));
      total += x[t];
    }
    stats.y = __fmaf_rn(stats.y, shrink, warp_sum(total));
    for (float& element : o) element *= shrink;
#pragma unroll
    for (int t = 0; t < lane_keys; ++t) {
      const float weights = round_to<product>(x[t]);
      for (int from = 0; from < min(keys - t * warp_size, warp_size); ++from) {
        const float weight = __shfl_sync(0xffffffffu, weights, from);
        const char* value = v + (t * warp_size + from) * p.v.token;
#pragma unroll
        for (int e = 0; e < lane_elements; ++e) {
          o[e] = __fmaf_rn(weight, load<type>(value, lane_elements * lane + e), o[e]);
        }
      }
    }
  }
  const Normalize normalize(stats, p.v_scale.value());
  const std::int64_t token = row.token(tile);
  const int head = row.q_head(p, tile);
  std::uint16_t* out = p.out + token * p.out_token + head * p.out_head + lane_elements * lane;
#pragma unroll
  for (int e = 0; e < lane_elements; e += 2) {
    const std::uint32_t bits = pack_out(p.out_is_f16, normalize(o[e]), normalize(o[e + 1]));
    out[e] = static_cast<std::uint16_t>(bits);
    out[e + 1] = static_cast<std::uint16_t>(bits >> 16);
  }
  if (p.lse != nullptr && lane == 0) {
    p.lse[token * p.lse_token + head * p.lse_head] = lse_of(stats);
  }
}

}  // namespace msa::cuda::sm90::prefill
