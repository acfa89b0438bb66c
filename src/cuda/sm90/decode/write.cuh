// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/convert.cuh"
#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/fold.cuh"

/// \file
/// The end of an item: groups are folded into the row's result, across the cluster where one shares
/// the item, and written.

namespace msa::cuda::sm90::decode {

template <class Cache, int n>
class Write {
 public:
  __device__ Write(const Params& p, const Cta<n>& cta, const Item& item)
      : p_(p), cta_(cta), item_(item), v_scale_(p.v_scale.value()) {}

  /// From this CTA's total.
  __device__ void own() const {
    constexpr int slot = partials(n) - 1;
    for (int index = thread(); index < cells; index += math_threads) {
      write(index, stats(cta_.shared, slot, index), cell(cta_.shared, slot, index));
    }
  }

  /// This CTA's part of the cells, from the partial results of all CTAs of the cluster.
  __device__ void share() const {
    const int part = cells / p_.cluster;
    for (int index = cta_.cluster_rank * part + thread(); index < (cta_.cluster_rank + 1) * part;
         index += math_threads) {
      const float4 none = {no_keys().x, no_keys().y, no_keys().x, no_keys().y};
      float4 total_stats = none, total = {0, 0, 0, 0};
      const int count = group_partials(p_.cluster, n);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        float4 group_stats = none, group = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < segments_per_group(n); ++i) {
          if (i >= count) break;
          const PartialPlace place = partial_place(g, i, p_.cluster, n);
          const Shared<n>& from = ptx::in_cta(cta_.shared, place.cta);
          const float4 partial_stats = stats(from, place.slot, index);
          const float4 partial = cell(from, place.slot, index);
          const PairFold fold(group_stats, partial_stats);
          group = fold(group, partial);
          group_stats = fold.stats();
        }
        const PairFold fold(total_stats, group_stats);
        total = fold(total, group);
        total_stats = fold.stats();
      }
      write(index, total_stats, total);
    }
  }

 private:
  static constexpr int pairs = n / 8;
  static constexpr int cells = 2 * pairs * math_threads;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  // Cell `index` belongs to thread index mod 128 of the warpgroup, see math.cuh.
  __device__ static int lane_of(int index) { return index % warp_size; }
  __device__ static int warp_of(int index) { return index / warp_size % math_warps; }
  __device__ static int tile_of(int index) { return index / (pairs * math_threads); }
  __device__ static int column_of(int index) {
    return index / math_threads % pairs * 8 + index % 4 * 2;
  }
  /// The element of V's row that the cell's first or second half holds.
  __device__ static int element_of(int index, int half) {
    const int g = lane_of(index) / 4;
    if constexpr (Cache::widens) return 32 * warp_of(index) + 4 * g + 2 * tile_of(index) + half;
    return 64 * tile_of(index) + 16 * warp_of(index) + g + 8 * half;
  }

  __device__ static float4 stats(const Shared<n>& from, int slot, int index) {
    return *reinterpret_cast<const float4*>(&from.stats[slot][warp_of(index)][column_of(index)]);
  }
  __device__ static float4 cell(const Shared<n>& from, int slot, int index) {
    return reinterpret_cast<const float4*>(from.partial[slot])[index];
  }

  /// out = O / sum · v_scale, LSE = ln of the sum of exponentials; 0 and −inf without a key.
  __device__ void write(int index, const float4& stats, const float4& o) const {
    const int column = column_of(index);
    write_column(index, column, {stats.x, stats.y}, o.x, o.z);
    write_column(index, column + 1, {stats.z, stats.w}, o.y, o.w);
  }

  __device__ void write_column(int index, int column, const Stats& stats, float first,
                               float second) const {
    if (column >= item_.rows * p_.group) return;
    const std::int64_t token = item_.first_token + column / p_.group;
    const std::int64_t head = item_.head * p_.group + column % p_.group;
    const std::int64_t row = token * p_.out_token + head * p_.out_head;
    const float values[] = {first, second};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Adding 0 leaves one sign of zero.
      const float x =
          stats.y == 0 ? 0.0f : values[half] * (1.0f / stats.y) * v_scale_ + 0.0f;
      p_.out[row + element_of(index, half)] =
          static_cast<std::uint16_t>(p_.out_is_f16 ? f32_to_f16(x) : f32_to_bf16(x));
    }
    if (p_.lse != nullptr && tile_of(index) == 0 && warp_of(index) == 0 && lane_of(index) < 4) {
      const float log2_sum = stats.y == 0 ? -INFINITY : stats.x + log2f(stats.y);
      p_.lse[token * p_.lse_token + head * p_.lse_head] =
          log2_sum * 0.69314718055994530942f;  // ln 2
    }
  }

  const Params& p_;
  const Cta<n>& cta_;
  const Item& item_;
  float v_scale_;
};

}  // namespace msa::cuda::sm90::decode
