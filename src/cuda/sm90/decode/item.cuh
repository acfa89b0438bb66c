// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/warp.cuh"
#include "cuda/sm90/decode/config.h"
#include "cuda/sm90/decode/params.h"

/// \file
/// An item's place in the batch, and the list of its pages.

namespace msa::cuda::sm90::decode {

struct Item {
  __device__ Item(const Params& p, std::int64_t index) {
    const std::int64_t pair = index / p.row_groups;
    first_row = static_cast<int>(index % p.row_groups) * p.rows;
    rows = min(p.rows, p.m - first_row);
    request = pair / p.kv_heads;
    head = static_cast<int>(pair % p.kv_heads);
    first_token = request * p.m + first_row;
  }

  /// Keys that row `row` of the item sees, of a request of `seq_len` keys.
  __device__ std::int32_t visible(const Params& p, std::int32_t seq_len, int row) const {
    if (!p.causal) return seq_len;
    return max(seq_len - p.m + first_row + row + 1, 0);
  }

  std::int64_t request;
  std::int64_t first_token;
  int head;
  int first_row;  // of the request
  int rows;
};

__device__ inline std::int32_t length_of(const Params& p, const Item& item) {
  return max(p.batch.seq_lens[item.request], 0);
}

/// The fetching warp's memory while it makes a list.
struct ListScratch {
  std::int32_t* id;      // [capacity] as selected; no_block where not valid
  std::int32_t* first;   // [capacity] the same, repeats taken out
  std::int32_t* page;    // [capacity] of `id`
  std::int32_t* sorted;  // [capacity] pages of the finished list
};

inline constexpr std::int32_t no_block = 0x7fffffff;

/// Reads what the rows selected; what is not valid, or has no page, becomes no_block.
__device__ inline void read_selection(const Params& p, const Item& item, std::int32_t seq_len,
                                      int count, const ListScratch& scratch) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (int i = lane; i < count; i += warp_size) {
    const int row = i / p.topk;
    const std::int32_t id =
        p.selection[(item.first_token + row) * p.selection_token + item.head * p.selection_list +
                    i % p.topk * p.selection_slot];
    const std::int64_t visible = item.visible(p, seq_len, row);
    const std::int64_t blocks = (visible + page_size - 1) / page_size;
    std::int64_t page = -1;
    if (id >= 0 && id < blocks && id % p.world == p.rank) {
      page = find_page(p.batch, item.request, id / p.world, p.pages);
    }
    scratch.id[i] = page < 0 ? no_block : id;
    scratch.page[i] = static_cast<std::int32_t>(page);
  }
  __syncwarp();
}

/// The ascending list of the distinct valid blocks of all rows; their pages are left in
/// `scratch.sorted`. One warp; returns the length. Every id is compared with every other: there are
/// 16 to 64 of them in the usual shapes.
__device__ inline int build_list(const Params& p, const Item& item, std::int32_t seq_len,
                                 const ListView& list, const ListScratch& scratch) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int count = item.rows * p.topk;
  read_selection(p, item, seq_len, count, scratch);

  int length = 0;
  for (int i = lane; i - lane < count; i += warp_size) {
    std::int32_t id = i < count ? scratch.id[i] : no_block;
    for (int j = 0; j < count && j < i; ++j) {
      if (scratch.id[j] == id) id = no_block;
    }
    if (i < count) scratch.first[i] = id;
    length += __popc(__ballot_sync(0xffffffffu, id != no_block));
  }
  __syncwarp();

  for (int i = lane; i < count; i += warp_size) {
    const std::int32_t id = scratch.first[i];
    if (id == no_block) continue;
    std::int32_t rows = 0;
    int rank = 0;
    for (int row = 0, j = 0; row < item.rows; ++row) {
      for (int end = j + p.topk; j < end; ++j) {
        if (scratch.id[j] == id) rows |= 1 << row;
        if (scratch.first[j] < id) ++rank;
      }
    }
    list.id[rank] = id;
    list.rows[rank] = rows;
    scratch.sorted[rank] = scratch.page[i];
  }
  __syncwarp();
  return length;
}

}  // namespace msa::cuda::sm90::decode
