// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/block_order.h"
#include "msa/types.h"

/// \file
/// The best blocks of one row, kept in shared memory by a CTA of 128 threads.

namespace msa::cuda::portable {

/// Threads of every CTA that uses a list: the keys of a block, and the blocks of a tile.
inline constexpr int list_threads = 128;
static_assert(list_threads >= max_topk, "one thread an entry");

/// What all lists of a CTA share.
struct TopListScratch {
  BlockKey tile[list_threads];
};

/// Best keys in descending order, 0 where there is none.
struct TopList {
  BlockKey best[max_topk];

  /// Before the first add(); a barrier must follow.
  __device__ void clear() {
    if (threadIdx.x < max_topk) best[threadIdx.x] = 0;
  }

  /// Adds one candidate a thread, 0 for none. All threads of the CTA call it together. Keys differ,
  /// so every key's place in the merged list is the number of larger ones.
  __device__ void add(BlockKey key, int topk, TopListScratch& scratch) {
    const bool enters = key > best[topk - 1];
    if (!__syncthreads_or(enters)) return;
    const int i = static_cast<int>(threadIdx.x);
    scratch.tile[i] = enters ? key : 0;
    __syncthreads();
    const BlockKey old = i < topk ? best[i] : 0;
    int old_place = i, place = 0;
    for (int j = 0; j < list_threads; ++j) {
      old_place += scratch.tile[j] > old;
      place += scratch.tile[j] > key;
    }
    for (int j = 0; j < topk; ++j) place += best[j] > key;
    __syncthreads();
    if (i < topk && old_place < topk) best[old_place] = old;
    if (enters && place < topk) best[place] = key;
    __syncthreads();
  }

  /// Writes the ids in ascending order, then −1. All threads call it together.
  __device__ void write_ids(int topk, std::int32_t* to, std::int64_t stride) const {
    const int i = static_cast<int>(threadIdx.x);
    const bool chosen = i < topk && best[i] != 0;
    const int count = __syncthreads_count(chosen);
    if (i >= topk) return;
    if (!chosen) {
      to[i * stride] = -1;  // entries without a key are the last ones
      return;
    }
    const std::int32_t id = id_of(best[i]);
    int place = 0;
    for (int j = 0; j < count; ++j) place += id_of(best[j]) < id;
    to[place * stride] = id;
  }
};

}  // namespace msa::cuda::portable
