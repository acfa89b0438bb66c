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
  __device__ float operator()(float o) const { return empty ? 0.0f : o * inverse * v_scale + 0.0f; }

  bool empty;
  float inverse, v_scale;
};

/// Two elements of out, `first` in the low half.
__device__ inline std::uint32_t pack_out(const Params& p, float first, float second) {
  return p.out_is_f16 ? pack<ptx::Operand::f16>(first, second)
                      : pack<ptx::Operand::bf16>(first, second);
}

/// Parts of one column, folded in order, by one lane for `width` elements: all are fetched before
/// the first fold, and no branch may keep a fetch waiting. A part without a page is left out.
template <int width>
struct Parts {
  template <int count>
  struct Of {
    Stats stats[count];
    float o[count][width];

    __device__ void leave_out(int i) {
      stats[i] = no_keys();
#pragma unroll
      for (float& x : o[i]) x = 0;
    }
    /// Returns the statistics; `result` gets O.
    __device__ Stats fold(float (&result)[width]) const {
      Stats all = no_keys();
#pragma unroll
      for (float& x : result) x = 0;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const Fold fold(all, stats[i]);
#pragma unroll
        for (int e = 0; e < width; ++e) result[e] = fold(result[e], o[i][e]);
        all = fold.stats;
      }
      return all;
    }
  };
};

template <int n>
__device__ inline void fetch_part(const Cta<n>& cta, PartialPlace place, int column, int element,
                                  Stats& stats, float (&o)[4]) {
  stats = ptx::in_cta(cta.shared.stats[place.slot][column], place.cta);
  const float* from = cta.partial(place.slot) + column * partial_stride + element;
  const float4 four = ptx::in_cta(*reinterpret_cast<const float4*>(from), place.cta);
  o[0] = four.x;
  o[1] = four.y;
  o[2] = four.z;
  o[3] = four.w;
}

/// This CTA's columns, from one partial result of each group: a warp a column.
template <int n>
__device__ inline void write_share(const Params& p, const Cta<n>& cta, const Item& item,
                                   int length) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int per_cta = columns_of_cta(p.cluster, n);
  const int end = min((cta.cluster_rank + 1) * per_cta, item.rows * p.group);
  for (int column = cta.cluster_rank * per_cta + warp; column < end; column += math_warps) {
    typename Parts<4>::template Of<groups> parts;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      fetch_part(cta, partial_place(g, 0, p.cluster, n), column, 4 * lane, parts.stats[g],
                 parts.o[g]);
    }
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const int first = g * segments_per_group(n);
      if (!any_page(first, first + segments_per_group(n), length, n)) parts.leave_out(g);
    }
    float o[4];
    const Stats stats = parts.fold(o);
    const Normalize normalize(stats, p.v_scale.value());
    const uint2 bits = {pack_out(p, normalize(o[0]), normalize(o[1])),
                        pack_out(p, normalize(o[2]), normalize(o[3]))};
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

/// This CTA's one column, from one partial result of each segment: a warp folds a group's, then
/// every thread one element of all groups.
template <int n>
__device__ inline void write_column(const Params& p, const Cta<n>& cta, const Item& item,
                                    int length) {
  const int column = cta.cluster_rank;
  if (column >= item.rows * p.group) return;  // the CTA as a whole
  constexpr int count = segments_per_group(n);
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / warp_size, element = thread % warp_size * 4;
  Shared<n>& s = cta.shared;
  // P's place is free, and so are the second partial result's statistics.
  auto* cells = reinterpret_cast<float*>(s.weights);  // [groups][128]
  Stats* cell_stats = s.stats[1];
  {
    typename Parts<4>::template Of<count> parts;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      fetch_part(cta, partial_place(group, i, p.cluster, n), column, element, parts.stats[i],
                 parts.o[i]);
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!any_page(group * count + i, group * count + i + 1, length, n)) parts.leave_out(i);
    }
    float o[4];
    const Stats stats = parts.fold(o);
    *reinterpret_cast<float4*>(cells + group * head_dim + element) = {o[0], o[1], o[2], o[3]};
    if (thread % warp_size == 0) cell_stats[group] = stats;
  }
  ptx::sync_threads(1, math_threads);
  typename Parts<1>::template Of<groups> parts;
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    parts.stats[g] = cell_stats[g];
    parts.o[g][0] = cells[g * head_dim + thread];
  }
  float o[1];
  const Stats stats = parts.fold(o);
  const OutRow row(p, item, s.row[column], column);
  row.out[thread] =
      static_cast<std::uint16_t>(pack_out(p, Normalize(stats, p.v_scale.value())(o[0]), 0.0f));
  if (thread == 0) row.write_lse(p, stats);
}

}  // namespace msa::cuda::sm90::decode
