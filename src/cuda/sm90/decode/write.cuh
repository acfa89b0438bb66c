// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/convert.cuh"
#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/fold.cuh"
#include "cuda/sm90/decode/traits.cuh"

/// \file
/// The end of an item: results become rows of out and LSE.

namespace msa::cuda::sm90::decode {

/// Rows of out and LSE of an item's column.
struct OutRow {
  __device__ OutRow(const Params& p, const Item& item, int row, int column) {
    token = item.first_token + row;
    head = item.head * p.group + column - row * p.group;
    out = p.out + token * p.out_token + head * p.out_head;
  }
  __device__ void write_lse(const Params& p, const Stats& stats) const {
    if (p.lse == nullptr) return;
    const float log2_sum = stats.y == 0 ? -INFINITY : stats.x + log2f(stats.y);
    p.lse[token * p.lse_token + head * p.lse_head] = log2_sum * 0.69314718055994530942f;  // ln 2
  }

  std::int64_t token;
  int head;
  std::uint16_t* out;
};

/// O / sum · v_scale; 0 without a key.
struct Normalize {
  __device__ Normalize(const Stats& stats, float v_scale)
      : empty(stats.y == 0), inverse(1.0f / stats.y), v_scale(v_scale) {}
  /// Adding 0 leaves one sign of zero.
  __device__ float operator()(float o) const {
    return empty ? 0.0f : o * inverse * v_scale + 0.0f;
  }

  bool empty;
  float inverse, v_scale;
};

/// Two elements of out, `first` in the low half.
__device__ inline std::uint32_t pack_out(const Params& p, float first, float second) {
  return p.out_is_f16 ? pack<ptx::Operand::f16>(first, second)
                      : pack<ptx::Operand::bf16>(first, second);
}

/// One column's four elements from `count` partial results of each group, by one lane; all are
/// fetched from the cluster before the first fold.
template <int count, int n>
__device__ inline float4 gather(const Params& p, const Cta<n>& cta, int length, int column,
                                int element, Stats& stats) {
  Stats partial_stats[groups * count];
  float4 partial[groups * count];
#pragma unroll
  for (int i = 0; i < groups * count; ++i) {
    const PartialPlace place = partial_place(i / count, i % count, p.cluster, n);
    partial_stats[i] = ptx::in_cta(cta.shared.stats[place.slot][column], place.cta);
    const float* cell = cta.partial(place.slot) + column * partial_stride + element;
    partial[i] = ptx::in_cta(*reinterpret_cast<const float4*>(cell), place.cta);
  }
  bool empty = true;
  float4 total = {0, 0, 0, 0};
  stats = {-INFINITY, 0};
  const auto add = [](bool& first, Stats& a_stats, float4& a, const Stats& b_stats,
                      const float4& b) {
    const Fold fold(a_stats, b_stats);
    a = first ? b : float4{fold(a.x, b.x), fold(a.y, b.y), fold(a.z, b.z), fold(a.w, b.w)};
    a_stats = first ? b_stats : fold.stats;
    first = false;
  };
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    bool group_empty = true;
    float4 group = {0, 0, 0, 0};
    Stats group_stats = {-INFINITY, 0};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      constexpr int width = segments_per_group(n) / count;
      const int segment = g * segments_per_group(n) + i * width;
      if (any_page(segment, segment + width, length, n)) {
        add(group_empty, group_stats, group, partial_stats[g * count + i],
            partial[g * count + i]);
      }
    }
    if (!group_empty) add(empty, stats, total, group_stats, group);
  }
  return total;
}

/// This CTA's columns, from the partial results of all CTAs of the cluster: a warp a column.
template <int n>
__device__ inline void write_share(const Params& p, const Cta<n>& cta, const Item& item,
                                   int length) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int per_cta = columns_of_cta(p.cluster, n);
  const int end = min((cta.cluster_rank + 1) * per_cta, item.rows * p.group);
  for (int column = cta.cluster_rank * per_cta + warp; column < end; column += math_warps) {
    Stats stats;
    const float4 o = p.cluster > groups
                         ? gather<segments_per_group(n)>(p, cta, length, column, 4 * lane, stats)
                         : gather<1>(p, cta, length, column, 4 * lane, stats);
    const Normalize normalize(stats, p.v_scale.value());
    const uint2 bits = {pack_out(p, normalize(o.x), normalize(o.y)),
                        pack_out(p, normalize(o.z), normalize(o.w))};
    const OutRow row(p, item, cta.shared.row[column], column);
    std::uint16_t* to = row.out + 4 * lane;
    if (p.out_aligned) {
      *reinterpret_cast<uint2*>(to) = bits;
    } else {
      to[0] = static_cast<std::uint16_t>(bits.x);
      to[1] = static_cast<std::uint16_t>(bits.x >> 16);
      to[2] = static_cast<std::uint16_t>(bits.y);
      to[3] = static_cast<std::uint16_t>(bits.y >> 16);
    }
    if (lane == 0) row.write_lse(p, stats);
  }
}

}  // namespace msa::cuda::sm90::decode
