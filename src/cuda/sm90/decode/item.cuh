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
  __device__ Item(const Params& p, int index) {
    const int pair = p.row_groups == 1 ? index : index / p.row_groups;
    first_row = (index - pair * p.row_groups) * p.rows;
    rows = min(p.rows, p.m - first_row);
    request = pair / p.kv_heads;
    head = pair - request * p.kv_heads;
    first_token = std::int64_t{request} * p.m + first_row;
  }

  /// Keys that row `row` of the item sees, of a request of `seq_len` keys.
  __device__ std::int32_t visible(const Params& p, std::int32_t seq_len, int row) const {
    if (!p.causal) return seq_len;
    return max(seq_len - p.m + first_row + row + 1, 0);
  }

  int request;
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
__device__ inline void read_selection(const Params& p, const Item& item, int count,
                                      const ListScratch& scratch) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (int i = lane; i < count; i += warp_size) {
    const int row = item.rows == 1 ? 0 : i / p.topk;
    const std::int32_t id =
        p.selection[(item.first_token + row) * p.selection_token + item.head * p.selection_list +
                    (i - row * p.topk) * p.selection_slot];
    // Both loads are under way before either is looked at.
    const std::int64_t visible = item.visible(p, length_of(p, item), row);
    const auto blocks = static_cast<std::int32_t>((visible + page_size - 1) / page_size);
    std::int64_t page = -1;
    if (id >= 0 && id < blocks) {
      if (p.world == 1) {
        page = find_page(p.batch, item.request, id, p.pages);
      } else if (id % p.world == p.rank) {
        page = find_page(p.batch, item.request, id / p.world, p.pages);
      }
    }
    scratch.id[i] = page < 0 ? no_block : id;
    scratch.page[i] = static_cast<std::int32_t>(page);
  }
  __syncwarp();
}

/// The usual case, one row with at most 32 ids as the indexer writes them (ascending, none twice,
/// holes last): they are the list already. Returns −1 in every other case.
__device__ inline int take_sorted(const Item& item, int count, const ListView& list,
                                  const ListScratch& scratch) {
  if (item.rows > 1 || count > warp_size) return -1;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int32_t id = lane < count ? scratch.id[lane] : no_block;
  const std::int32_t before = __shfl_up_sync(0xffffffffu, id, 1);
  const bool in_order = lane == 0 || id > before || id == no_block;
  if (!__all_sync(0xffffffffu, in_order)) return -1;
  const unsigned valid = __ballot_sync(0xffffffffu, id != no_block);
  if (id != no_block) {
    list.id[lane] = id;
    list.rows[lane] = 1;
    scratch.sorted[lane] = scratch.page[lane];
  }
  __syncwarp();
  return __popc(valid);
}

/// Ids four at a time; the arrays are padded to a multiple of four.
__device__ inline int4 four(const std::int32_t* ids, int i) {
  return *reinterpret_cast<const int4*>(ids + i);
}

/// The ascending list of the distinct valid blocks of all rows; their pages are left in
/// `scratch.sorted`. One warp; returns the length. Every id is compared with every other: there are
/// 64 of them in the usual shapes.
__device__ inline int build_list(const Params& p, const Item& item, const ListView& list,
                                 const ListScratch& scratch) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int count = item.rows * p.topk;
  read_selection(p, item, count, scratch);
  int length = take_sorted(item, count, list, scratch);
  if (length >= 0) return length;

  if (lane < 4 && count + lane < padded(count)) scratch.id[count + lane] = no_block;
  __syncwarp();
  length = 0;
  for (int i = lane; i - lane < count; i += warp_size) {
    const std::int32_t id = i < count ? scratch.id[i] : no_block;
    int repeats = 0;
    for (int j = 0; j < i && j < count; j += 4) {
      const int4 other = four(scratch.id, j);
      repeats += (other.x == id) + (other.y == id && j + 1 < i) + (other.z == id && j + 2 < i) +
                 (other.w == id && j + 3 < i);
    }
    const bool first = id != no_block && repeats == 0;
    if (i < padded(count)) scratch.first[i] = first ? id : no_block;
    length += __popc(__ballot_sync(0xffffffffu, first));
  }
  __syncwarp();

  for (int i = lane; i < count; i += warp_size) {
    const std::int32_t id = scratch.first[i];
    if (id == no_block) continue;
    int rank = 0;
    for (int j = 0; j < count; j += 4) {
      const int4 other = four(scratch.first, j);
      rank += (other.x < id) + (other.y < id) + (other.z < id) + (other.w < id);
    }
    std::int32_t rows = 0;
    for (int row = 0, j = 0; row < item.rows; ++row) {
      for (int end = j + p.topk; j < end; ++j) rows |= (scratch.id[j] == id) << row;
    }
    list.id[rank] = id;
    list.rows[rank] = rows;
    scratch.sorted[rank] = scratch.page[i];
  }
  __syncwarp();
  return length;
}

}  // namespace msa::cuda::sm90::decode
