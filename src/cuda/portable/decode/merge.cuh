// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/items.h"
#include "cuda/common/dependency.cuh"
#include "cuda/common/row_out.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/portable/decode/config.h"
#include "cuda/portable/decode/fold.cuh"

/// \file
/// The end of a split: the partial results of each row, folded as one CTA would have. A warp a row
/// and query head, four columns a lane.

namespace msa::cuda::portable::decode {

inline constexpr int merge_warps = 1;

template <int tiles>
__global__ __launch_bounds__(32 * merge_warps) void merge_kernel(const __grid_constant__ Params p) {
  meet_dependencies();
  constexpr int rows = 16 * tiles;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int pairs = p.rows * p.group;
  const int index =
      static_cast<int>(blockIdx.x) * merge_warps + static_cast<int>(threadIdx.x) / warp_size;
  const int item_index = index / pairs, pair = index - item_index * pairs;
  if (item_index >= p.items) return;
  const Item item(p, item_index);
  const int row = row_of(pair, p.row_factor);
  if (row >= item.rows) return;
  const char* from = p.workspace + item_index * item_bytes(p.units, tiles);
  const int units = *reinterpret_cast<const std::int32_t*>(from);
  from += header_bytes;
  const int share = share_of_item(p, units);
  // Where the share is known beforehand, results are asked for together with their number.
  const int end = p.share != 0 ? p.units : units;

  constexpr int batch = 16;  // loads under way together
  static_assert(batch % group_units == 0);
  Stats group_stats = no_keys(), total_stats = no_keys();
  float4 group = {0, 0, 0, 0}, total = {0, 0, 0, 0};
  const auto add = [](Stats& a_stats, float4& a, const Stats& b_stats, const float4& b) {
    const Fold fold(a_stats, b_stats);
    a_stats = fold.stats;
    a = {fold(a.x, b.x), fold(a.y, b.y), fold(a.z, b.z), fold(a.w, b.w)};
  };
#pragma unroll 1
  for (int begin = 0; begin < end; begin += batch) {
    Stats stats[batch];
    float4 o[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int u = begin + i;
      if (u >= end || !starts_partial(u, share)) continue;
      const char* partial = from + u * partial_bytes(tiles);
      o[i] =
          *reinterpret_cast<const float4*>(partial + (pair * head_dim + 4 * lane) * sizeof(float));
      stats[i] = *reinterpret_cast<const Stats*>(partial + rows * head_dim * sizeof(float) +
                                                 pair * sizeof(Stats));
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int u = begin + i;
      if (u >= units) break;
      if (i % group_units == 0) {
        group_stats = stats[i];
        group = o[i];
      } else if (starts_partial(u, share)) {
        add(group_stats, group, stats[i], o[i]);
      }
      if ((i + 1) % group_units == 0 || u + 1 == units) {
        add(total_stats, total, group_stats, group);
      }
    }
  }

  const Normalize normalize(total_stats, p.v_scale.value());
  const std::int64_t token = item.first_token + row;
  const int head = item.head * p.group + pair - row * p.group;
  std::uint16_t* out = p.out + token * p.out_token + head * p.out_head + 4 * lane;
  const uint2 bits = {pack_out(p.out_is_f16, normalize(total.x), normalize(total.y)),
                      pack_out(p.out_is_f16, normalize(total.z), normalize(total.w))};
  if (p.out_aligned) {
    *reinterpret_cast<uint2*>(out) = bits;
  } else {
    out[0] = static_cast<std::uint16_t>(bits.x);
    out[1] = static_cast<std::uint16_t>(bits.x >> 16);
    out[2] = static_cast<std::uint16_t>(bits.y);
    out[3] = static_cast<std::uint16_t>(bits.y >> 16);
  }
  if (p.lse != nullptr && lane == 0) {
    p.lse[token * p.lse_token + head * p.lse_head] = lse_of(total_stats);
  }
}

}  // namespace msa::cuda::portable::decode
