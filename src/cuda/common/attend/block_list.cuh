// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/arithmetic.h"
#include "cuda/common/attend/block_list.h"
#include "cuda/common/batch.cuh"
#include "cuda/common/warp.cuh"
#include "msa/types.h"

/// \file
/// The ascending list of the blocks that some rows of a request chose, made by one warp. Params has
/// the call's selection, batch and shard (see call.cuh); Item its request, its first_token and the
/// number of its rows, its head, and what a row sees: visible(params, seq_len, row).

namespace msa::cuda {

/// The memory of the warp that makes a list while it does.
struct ListScratch {
  std::int32_t* id;      // [capacity] as selected; no_block where not valid
  std::int32_t* page;    // [capacity] of `id`
  std::int32_t* sorted;  // [capacity] pages of the finished list
  std::uint32_t* bits;   // [bitmap_words] blocks that were chosen
  std::uint32_t* ones;   // [bitmap_words] bits set in the words before
};

inline constexpr std::int32_t no_block = 0x7fffffff;

/// Reads what the rows selected; what is not valid, or has no page, becomes no_block. The loads of
/// `batch` ids a lane, then of their pages, are under way together.
template <int batch, class Params, class Item>
__device__ inline void read_selection(const Params& p, const Item& item, std::int32_t seq_len,
                                      int count, const ListScratch& scratch) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int32_t* selection =
      p.selection + item.first_token * p.selection_token + item.head * p.selection_list;
  const auto page_of = [&](std::int32_t column) {
    return static_cast<std::int32_t>(find_page(p.batch, item.request, column, p.pages));
  };
  for (int begin = lane; begin - lane < count; begin += batch * warp_size) {
    std::int32_t id[batch], page[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = begin + b * warp_size, row = row_of(i, p.slot_factor);
      id[b] = i < count ? selection[row * p.selection_token + (i - row * p.topk) * p.selection_slot]
                        : -1;
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int row = row_of(begin + b * warp_size, p.slot_factor);
      page[b] = -1;
      if (id[b] < 0 || std::int64_t{id[b]} * page_size >= item.visible(p, seq_len, row)) continue;
      if (p.world == 1) {
        page[b] = page_of(id[b]);
      } else if (id[b] % p.world == p.rank) {
        page[b] = page_of(id[b] / p.world);
      }
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = begin + b * warp_size;
      if (i >= count) continue;
      scratch.id[i] = page[b] < 0 ? no_block : id[b];
      scratch.page[i] = page[b];
    }
  }
  __syncwarp();
}

/// The usual case of one row, at most 32 ids as the indexer writes them (ascending, none twice,
/// holes last): they are the list already. Returns −1 in every other case.
template <class Item>
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

/// Sorts through one bit for each block, in time that hardly depends on the number of ids: a
/// block's place is the number of bits before its own. Requests of more blocks than bits take
/// several rounds, each from the smallest id that has no place yet.
template <class Params>
__device__ inline int sort_by_bits(const Params& p, int blocks, int count, const ListView& list,
                                   const ListScratch& scratch) {
  static_assert(bitmap_words == warp_size, "a lane looks after one word");
  constexpr int round_blocks = 32 * bitmap_words;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  for (int i = lane; i < count; i += warp_size) list.rows[i] = 0;
  int length = 0;
  for (int first = 0; first < blocks; first += round_blocks) {
    if (blocks > round_blocks) {
      int smallest = no_block;
      for (int i = lane; i < count; i += warp_size) {
        if (scratch.id[i] >= first) smallest = min(smallest, scratch.id[i]);
      }
      first = __reduce_min_sync(0xffffffffu, smallest);
      if (first == no_block) break;
    }
    const auto bit_of = [&](int i) {
      const std::int32_t id = scratch.id[i];
      return id >= first && id - first < round_blocks ? id - first : -1;
    };
    scratch.bits[lane] = 0;
    __syncwarp();
    for (int i = lane; i < count; i += warp_size) {
      const int bit = bit_of(i);
      if (bit >= 0) atomicOr(&scratch.bits[bit / 32], 1u << bit % 32);
    }
    __syncwarp();
    const int own = __popc(scratch.bits[lane]);
    const int through = warp_prefix(own);  // bits of this word and those before
    scratch.ones[lane] = length + through - own;
    __syncwarp();
    for (int i = lane; i < count; i += warp_size) {
      const int bit = bit_of(i);
      if (bit < 0) continue;
      const std::uint32_t lower = scratch.bits[bit / 32] & ((1u << bit % 32) - 1);
      const int rank = static_cast<int>(scratch.ones[bit / 32]) + __popc(lower);
      list.id[rank] = first + bit;  // a block that several rows chose has one page
      scratch.sorted[rank] = scratch.page[i];
      atomicOr(&list.rows[rank], 1 << row_of(i, p.slot_factor));
    }
    length += __shfl_sync(0xffffffffu, through, warp_size - 1);
    __syncwarp();
  }
  return length;
}

/// The ascending list of the distinct valid blocks of all rows; their pages are left in
/// `scratch.sorted`. One warp; returns the length.
template <class Params, class Item>
__device__ inline int build_list(const Params& p, const Item& item, std::int32_t seq_len,
                                 const ListView& list, const ListScratch& scratch) {
  const int count = item.rows * p.topk;
  if (count <= warp_size) {
    read_selection<1>(p, item, seq_len, count, scratch);
  } else {
    read_selection<4>(p, item, seq_len, count, scratch);
  }
  const int length = take_sorted(item, count, list, scratch);
  if (length >= 0) return length;
  const int blocks = (seq_len - 1) / page_size + 1;  // at least 1, as 0 keys leave no valid id
  return sort_by_bits(p, blocks, count, list, scratch);
}

}  // namespace msa::cuda
