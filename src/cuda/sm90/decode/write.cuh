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
    const float log2_sum = stats.y == 0 ? -INFINITY : __fadd_rn(stats.x, log2_fast(stats.y));
    p.lse[token * p.lse_token + head * p.lse_head] =
        __fmul_rn(log2_sum, 0.69314718055994530942f);  // ln 2
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
    return empty ? 0.0f : __fadd_rn(__fmul_rn(__fmul_rn(o, inverse), v_scale), 0.0f);
  }

  bool empty;
  float inverse, v_scale;
};

/// Two elements of out, `first` in the low half. P is rounded and its sum is not, so that the
/// quotient may pass the largest V by a little; out's type may end there.
__device__ inline std::uint32_t pack_out(const Params& p, float first, float second) {
  const float most = largest_of(p.out_is_f16);
  first = clamp_finite(first, most);
  second = clamp_finite(second, most);
  return p.out_is_f16 ? pack<ptx::Operand::f16>(first, second)
                      : pack<ptx::Operand::bf16>(first, second);
}

/// `count` results of one column, folded in order by a warp: each lane has four elements of O and
/// one of the 32 parts of the sum. All are fetched before the first fold, and no branch may keep a
/// fetch waiting.
template <int count>
struct Parts {
  Stats stats[count];
  float4 o[count];

  template <int n>
  __device__ void fetch(int i, const Cta<n>& cta, const Partial& place, int column, int lane) {
    const float* row = cta.partial(place.slot) + column * partial_stride;
    stats[i] = {ptx::in_cta(row[partial_maximum], place.cta),
                ptx::in_cta(row[partial_sum + lane], place.cta)};
    o[i] = ptx::in_cta(reinterpret_cast<const float4*>(row)[lane], place.cta);
  }
  /// A result that its CTA did not write, as it had no page.
  __device__ void leave_out(int i) {
    stats[i] = no_keys();
    o[i] = {0, 0, 0, 0};
  }
  __device__ void fold(Stats& all_stats, float4& all) const {
    all_stats = no_keys();
    all = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const Fold fold(all_stats, stats[i]);
      all = {fold(all.x, o[i].x), fold(all.y, o[i].y), fold(all.z, o[i].z), fold(all.w, o[i].w)};
      all_stats = fold.stats;
    }
  }
};

/// The sum over the 32 threads of a column, in the order of Math::total_sum.
__device__ inline float sum_of_threads(float part) {
  for (int lanes = 1; lanes < warp_size; lanes *= 2) {
    part += __shfl_xor_sync(0xffffffffu, part, lanes);
  }
  return part;
}

/// Four elements of a column's row a lane.
__device__ inline void write_column(const Params& p, const OutRow& row, int lane, Stats stats,
                                    const float4& o) {
  stats.y = sum_of_threads(stats.y);
  const Normalize normalize(stats, p.v_scale.value());
  const uint2 bits = {pack_out(p, normalize(o.x), normalize(o.y)),
                      pack_out(p, normalize(o.z), normalize(o.w))};
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

/// This CTA's columns, a warp each, from one result of each group.
template <int n>
__device__ inline void write_columns(const Params& p, const Cta<n>& cta, const Item& item,
                                     int length) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int per_cta = columns_of_cta(p.cluster, n);
  const int end = min((cta.cluster_rank + 1) * per_cta, item.rows * p.group);
  for (int column = cta.cluster_rank * per_cta + warp; column < end; column += math_warps) {
    Parts<groups> parts;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      parts.fetch(g, cta, partial_of(g, 0, p.cluster, n), column, lane);
    }
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      const Partial place = partial_of(g, 0, p.cluster, n);
      if (!any_page(place.begin, place.end, length, n)) parts.leave_out(g);
    }
    Stats stats;
    float4 o;
    parts.fold(stats, o);
    write_column(p, OutRow(p, item, cta.shared.row[column], column), lane, stats, o);
  }
}

/// The same from `count` results of each group: a warp folds a group, then one warp the groups.
template <int count, int n>
__device__ inline void write_columns_by_group(const Params& p, const Cta<n>& cta, const Item& item,
                                              int length) {
  const int group = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  // Q and P are no longer needed.
  auto* cells = reinterpret_cast<float4*>(cta.shared.queries);  // [groups][32]
  auto* cell_stats = reinterpret_cast<Stats*>(cells + groups * warp_size);
  static_assert(
      groups * warp_size * (sizeof(float4) + sizeof(Stats)) <= 2 * Shared<n>::operand_bytes,
      "the groups' results fit");
  const int per_cta = columns_of_cta(p.cluster, n);
  const int end = min((cta.cluster_rank + 1) * per_cta, item.rows * p.group);
  for (int column = cta.cluster_rank * per_cta; column < end; ++column) {
    Parts<count> parts;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      parts.fetch(i, cta, partial_of(group, i, p.cluster, n), column, lane);
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const Partial place = partial_of(group, i, p.cluster, n);
      if (!any_page(place.begin, place.end, length, n)) parts.leave_out(i);
    }
    parts.fold(cell_stats[threadIdx.x], cells[threadIdx.x]);
    ptx::sync_threads(1, math_threads);
    if (group == 0) {
      Parts<groups> all;
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        all.stats[g] = cell_stats[g * warp_size + lane];
        all.o[g] = cells[g * warp_size + lane];
      }
      Stats stats;
      float4 o;
      all.fold(stats, o);
      write_column(p, OutRow(p, item, cta.shared.row[column], column), lane, stats, o);
    }
    ptx::sync_threads(1, math_threads);
  }
}

/// This CTA's part of the item's rows, from the results of all CTAs of the cluster.
template <int n>
__device__ inline void write_share(const Params& p, const Cta<n>& cta, const Item& item,
                                   int length) {
  if constexpr (segments_per_group(n) == 4) {
    if (p.cluster == 16)
      return write_columns_by_group<partials_of_group(16, n)>(p, cta, item, length);
    if (p.cluster == 8)
      return write_columns_by_group<partials_of_group(8, n)>(p, cta, item, length);
  }
  write_columns(p, cta, item, length);
}

}  // namespace msa::cuda::sm90::decode
