// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstdint>

#include "common/block_order.h"
#include "cuda/common/warp.cuh"

/// \file
/// The best blocks of a row, kept by a warp in its registers.

namespace msa::cuda {

/// Compares lane with lane ^ mask; the lower lane keeps the larger where `descending`.
template <class T>
__device__ inline T exchange(T x, int mask, bool descending) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const T other = __shfl_xor_sync(0xffffffffu, x, mask);
  const bool keeps_larger = ((lane & mask) == 0) == descending;
  return (other > x) == keeps_larger ? other : x;
}

/// Sorts a sequence over the lanes that first rises and then falls, or the other way round.
template <class T>
__device__ inline T sort_bitonic(T x, bool descending) {
#pragma unroll
  for (int mask = warp_size / 2; mask > 0; mask /= 2) x = exchange(x, mask, descending);
  return x;
}

/// Sorts any sequence over the lanes; the largest comes first where `descending`.
template <class T>
__device__ inline T sort_lanes(T x, bool descending) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int size = 2; size < warp_size; size *= 2) {
#pragma unroll
    for (int mask = size / 2; mask > 0; mask /= 2) {
      x = exchange(x, mask, ((lane & size) == 0) == descending);
    }
  }
  return sort_bitonic(x, descending);
}

/// The value of lane 31 − lane.
template <class T>
__device__ inline T reversed(T x) {
  return __shfl_xor_sync(0xffffffffu, x, warp_size - 1);
}

/// Of all candidates so far the best 32 · parts in descending order: lane l holds those of rank
/// 32 i + l. 0 where there is none. All of a warp call everything together.
template <int parts>
class TopList {
 public:
  __device__ TopList() {
#pragma unroll
    for (BlockKey& key : best_) key = 0;
  }

  /// Adds 32 sorted candidates, the best first; 0 for none.
  __device__ void add_sorted(BlockKey candidates) {
    static_assert(parts == 1 || parts == 2);
    BlockKey& last = best_[parts - 1];
    last = sort_bitonic(max(last, reversed(candidates)), true);
    if constexpr (parts == 2) {
      const BlockKey other = reversed(last);
      last = sort_bitonic(min(best_[0], other), true);
      best_[0] = sort_bitonic(max(best_[0], other), true);
    }
  }

  /// To and from [32 · parts] of memory.
  __device__ void store(BlockKey* to) const {
#pragma unroll
    for (int i = 0; i < parts; ++i) to[i * warp_size + threadIdx.x % warp_size] = best_[i];
  }
  __device__ void load(const BlockKey* from) {
#pragma unroll
    for (int i = 0; i < parts; ++i) best_[i] = from[i * warp_size + threadIdx.x % warp_size];
  }

  /// Writes the ids of the best `topk` in ascending order, then −1.
  __device__ void write_ids(int topk, std::int32_t* to, std::int64_t stride) const {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    std::int32_t ids[parts];
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const bool chosen = i * warp_size + lane < topk && best_[i] != 0;
      ids[i] = sort_lanes(chosen ? id_of(best_[i]) : INT_MAX, false);
    }
    if constexpr (parts == 2) {
      const std::int32_t other = reversed(ids[1]);
      ids[1] = sort_bitonic(max(ids[0], other), false);
      ids[0] = sort_bitonic(min(ids[0], other), false);
    }
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      const int slot = i * warp_size + lane;
      if (slot < topk) to[slot * stride] = ids[i] == INT_MAX ? -1 : ids[i];
    }
  }

 private:
  BlockKey best_[parts];
};

/// Writes the list of a row that sees no more than `topk` blocks, by a warp: all of them, then −1.
__device__ inline void write_all_ids(std::int64_t valid, int topk, std::int32_t* to,
                                     std::int64_t stride) {
  for (int i = static_cast<int>(threadIdx.x) % warp_size; i < topk; i += warp_size) {
    to[i * stride] = i < valid ? i : -1;
  }
}

/// Parts of a list of topk blocks.
constexpr int list_parts(int topk) { return topk <= warp_size ? 1 : 2; }

}  // namespace msa::cuda
