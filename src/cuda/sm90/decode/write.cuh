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
    p.lse[token * p.lse_token + head * p.lse_head] = lse_of(stats);
  }

  std::int64_t token;
  int head;
  std::uint16_t* out;
};

/// `count` results of one column, folded in order by a warp: each lane has four elements of O and
/// one of the 32 parts of the sum.
template <int count>
struct Parts {
  Stats stats[count];
  float4 o[count];

  __device__ void fetch(int i, const PartialColumn& partial, int lane) {
    stats[i] = {partial.maximum, partial.sum[lane]};
    o[i] = partial.o[lane];
  }
  /// A result that was not sent, as it has no page.
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

/// Two elements of out.
__device__ inline void store_pair(const Params& p, std::uint16_t* to, std::uint32_t bits) {
  if (p.out_aligned) {
    *reinterpret_cast<std::uint32_t*>(to) = bits;
  } else {
    to[0] = static_cast<std::uint16_t>(bits);
    to[1] = static_cast<std::uint16_t>(bits >> 16);
  }
}

/// A column's row: lane 8 w + g has the four elements of thread (w, g), see Cache::element.
template <class Cache>
__device__ inline void write_column(const Params& p, const OutRow& row, int lane, Stats stats,
                                    const float4& o) {
  stats.y = sum_of_threads(stats.y);
  const Normalize normalize(stats, p.v_scale.value());
  const float x[2][2] = {{normalize(o.x), normalize(o.y)}, {normalize(o.z), normalize(o.w)}};
  const int w = lane / 8, g = lane % 8;
  if constexpr (Cache::widens) {
    store_pair(p, row.out + Cache::element(w, g, 0, 0), pack_out(p.out_is_f16, x[0][0], x[0][1]));
    store_pair(p, row.out + Cache::element(w, g, 1, 0), pack_out(p.out_is_f16, x[1][0], x[1][1]));
  } else {
    // Neighbours in a row are g's: an even g takes the pairs of tile 0, the next one those of 1.
    const int odd = g % 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float other = __shfl_xor_sync(0xffffffffu, odd == 1 ? x[0][half] : x[1][half], 1);
      const std::uint32_t bits = odd == 1 ? pack_out(p.out_is_f16, other, x[1][half])
                                          : pack_out(p.out_is_f16, x[0][half], other);
      store_pair(p, row.out + Cache::element(w, g - odd, odd, half), bits);
    }
  }
  if (lane == 0) row.write_lse(p, stats);
}

/// Columns of the item that this CTA of a cluster writes.
template <int n>
__device__ inline int own_columns(const Params& p, const Cta<n>& cta, const Item& item) {
  const int per_cta = columns_of_cta(p.cluster, n);
  return min(max(item.rows * p.group - cta.cluster_rank * per_cta, 0), per_cta);
}

/// Bit g · count + i: the i-th of `count` partial results of group g has a page, and is sent. Of a
/// whole warp.
template <int n>
__device__ inline unsigned sent_partials(const Cta<n>& cta, int length) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int count = partials_of_group(cta.share, n);
  bool sent = false;
  if (lane < groups * count) {
    const Partial partial = partial_of(lane / count, lane % count, cta.share, n);
    sent = any_page(partial.begin, partial.end, length, n);
  }
  return __ballot_sync(0xffffffffu, sent);
}

/// This CTA's columns, a warp each, from one result of each group.
template <class Cache, int n>
__device__ inline void write_columns(const Params& p, const Cta<n>& cta, const Item& item,
                                     unsigned sent) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int first = cta.cluster_rank * columns_of_cta(p.cluster, n);
  for (int own = warp; own < own_columns(p, cta, item); own += math_warps) {
    Parts<groups> parts;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      parts.fetch(g, cta.received(own, g, 0, 1), lane);
      if ((sent >> g & 1) == 0) parts.leave_out(g);
    }
    Stats stats;
    float4 o;
    parts.fold(stats, o);
    const int column = first + own;
    write_column<Cache>(p, OutRow(p, item, cta.shared.row[column], column), lane, stats, o);
  }
}

/// The same from `count` results of each group: a warp folds a group, then one warp the groups.
template <class Cache, int count, int n>
__device__ inline void write_columns_by_group(const Params& p, const Cta<n>& cta, const Item& item,
                                              unsigned sent) {
  const int group = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  // Q and P are no longer needed: among the results that have arrived are this CTA's own, which its
  // warps sent when their products were done.
  auto* cells = reinterpret_cast<float4*>(cta.shared.queries);  // [groups][32]
  auto* cell_stats = reinterpret_cast<Stats*>(cells + groups * warp_size);
  static_assert(
      groups * warp_size * (sizeof(float4) + sizeof(Stats)) <= 2 * Shared<n>::operand_bytes,
      "the groups' results fit");
  const int first = cta.cluster_rank * columns_of_cta(p.cluster, n);
  for (int own = 0; own < own_columns(p, cta, item); ++own) {
    Parts<count> parts;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      parts.fetch(i, cta.received(own, group, i, count), lane);
      if ((sent >> (group * count + i) & 1) == 0) parts.leave_out(i);
    }
    Stats group_stats;
    float4 group_o;
    parts.fold(group_stats, group_o);
    cell_stats[threadIdx.x] = group_stats;
    cells[threadIdx.x] = group_o;
    ptx::sync_threads(barriers::math, math_threads);
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
      const int column = first + own;
      write_column<Cache>(p, OutRow(p, item, cta.shared.row[column], column), lane, stats, o);
    }
    ptx::sync_threads(barriers::math, math_threads);
  }
}

/// This CTA's part of the item's rows, from the results of all CTAs of the cluster.
template <class Cache, int n>
__device__ inline void write_share(const Params& p, const Cta<n>& cta, const Item& item,
                                   int length) {
  if (own_columns(p, cta, item) == 0) return;
  const unsigned sent = sent_partials(cta, length);
  ptx::wait_sent(cta.shared.received, 0);
  if constexpr (segments_per_group(n) == 4) {
    if (cta.share == 1) {
      return write_columns_by_group<Cache, partials_of_group(1, n)>(p, cta, item, sent);
    }
    if (cta.share == 2) {
      return write_columns_by_group<Cache, partials_of_group(2, n)>(p, cta, item, sent);
    }
  }
  write_columns<Cache>(p, cta, item, sent);
}

}  // namespace msa::cuda::sm90::decode
