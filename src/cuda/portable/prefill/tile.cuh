// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/portable/prefill/config.h"
#include "cuda/portable/prefill/params.h"
#include "cuda/sm90/common/block_list.cuh"
#include "cuda/sm90/prefill/plan.h"

/// \file
/// A CTA's view of its shared memory, and the warp that makes a tile's list.

namespace msa::cuda::portable::prefill {

using sm90::ListScratch;
using sm90::ListView;
using sm90::prefill::first_place;

template <DType type>
struct Cta {
  __device__ explicit Cta(unsigned char* memory)
      : queries(memory),
        ring(memory + query_bytes),
        tile(*reinterpret_cast<Tile*>(ring + Ring<type>::bytes)),
        factors(reinterpret_cast<float*>(ring + Ring<type>::bytes + tile_bytes)),
        list(reinterpret_cast<Entry*>(factors + tile_rows)) {}

  unsigned char* queries;  // [128][256 bytes], chunks of 16 bytes swizzled by the row
  unsigned char* ring;
  Tile& tile;
  float* factors;  // [128] of a row's logits, base 2
  Entry* list;     // [capacity]
};

/// A row of the products: a query head of a token.
struct TileRow {
  __device__ TileRow(const Params& p, int row)
      : own_token(row >> p.padded_group_log2), own_head(row & ((1 << p.padded_group_log2) - 1)) {}

  __device__ bool exists(const Params& p, const Tile& tile) const {
    return own_token < tile.rows && own_head < p.group;
  }
  __device__ std::int64_t token(const Tile& tile) const { return tile.first_token + own_token; }
  __device__ int q_head(const Params& p, const Tile& tile) const {
    return tile.head * p.group + own_head;
  }

  int own_token, own_head;  // of the tile
};

/// Where request `r` begins among the prefill tokens; the one behind the last has those of none.
__device__ inline std::int64_t begin_of(const Params& p, std::int64_t r) {
  const std::int64_t begin = p.batch.prefills == 0 ? 0 : p.batch.cu_seqlens_q[r];
  return min(max(begin, std::int64_t{0}), p.tokens);
}

/// The last request whose places begin at or before `place`; all lanes of a warp look at once.
__device__ inline std::int64_t find_request(const Params& p, std::int64_t place) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  std::int64_t low = 0, count = p.batch.prefills + 1;  // candidates
  while (count > 1) {
    const std::int64_t step = (count + warp_size - 1) / warp_size;
    const std::int64_t r = low + lane * step;
    const bool before = r < low + count && first_place(begin_of(p, r), r, p.tile_tokens) <= place;
    const int last = max(__popc(__ballot_sync(0xffffffffu, before)) - 1, 0);
    low += last * step;
    count = min(step, count - last * step);
  }
  return low;
}

/// Tile of an item; without tokens where its place is empty. Items go head by head, so that the
/// CTAs at work share pages, and from the last tokens to the first, which see the least and fill up
/// the end.
__device__ inline Tile find_tile(const Params& p, std::int64_t item) {
  Tile tile{};
  const std::int64_t head = item / p.places;
  const std::int64_t place = p.places - 1 - (item - head * p.places);
  const std::int64_t r = find_request(p, place);
  const std::int64_t begin = begin_of(p, r);
  const std::int64_t end = r < p.batch.prefills ? begin_of(p, r + 1) : p.tokens;
  const std::int64_t first = begin + (place - first_place(begin, r, p.tile_tokens)) * p.tile_tokens;
  tile.head = static_cast<std::int32_t>(head);
  tile.first_token = first;
  tile.rows = static_cast<std::int32_t>(
      max(min(end - first, std::int64_t{p.tile_tokens}), std::int64_t{0}));
  if (r == p.batch.prefills || tile.rows == 0) return tile;
  tile.request = static_cast<std::int32_t>(r);
  tile.seq_len = max(p.batch.seq_lens[r], 0);
  tile.position = p.batch.context_lens[r] + (first - begin);
  return tile;
}

/// Half a page of a tile's list.
struct HalfPage {
  __device__ HalfPage(const Tile& tile, int step)
      : entry(step / 2),
        partial(entry >= tile.whole),
        first_key((entry > tile.whole ? tile.partial_id[1] : tile.partial_id[0]) * page_size +
                  step % 2 * half_keys) {}

  int entry;               // of the list
  bool partial;            // some token of the tile may not see all of it
  std::int32_t first_key;  // where partial
};

/// Half pages of the list that some token sees.
__device__ inline int count_steps(const Params& p, const Tile& tile) {
  if (tile.length == 0) return 0;
  const int steps = 2 * tile.length;
  const HalfPage last(tile, steps - 1);
  const bool seen = !last.partial || tile.visible(p, tile.seq_len, tile.rows - 1) > last.first_key;
  return seen ? steps : steps - 1;
}

/// The tile's list, by one warp, made in the ring's memory.
template <DType type>
__device__ inline void make_list(const Params& p, const Cta<type>& cta, Tile& tile) {
  if (tile.seq_len == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  auto* const bits = reinterpret_cast<std::uint32_t*>(cta.ring);
  const auto array = [&](int i) {
    return reinterpret_cast<std::int32_t*>(bits + 2 * sm90::bitmap_words) + i * p.capacity;
  };
  const ListView view = {array(0), array(1)};
  const ListScratch scratch = {array(2), array(3), array(4), bits, bits + sm90::bitmap_words};
  tile.length = sm90::build_list(p, tile, tile.seq_len, view, scratch);
  __syncwarp();
  const int first_partial = tile.visible(p, tile.seq_len, 0) / page_size;
  for (int begin = 0; begin < tile.length; begin += warp_size) {
    const int i = begin + lane;
    const bool exists = i < tile.length;
    tile.whole += __popc(__ballot_sync(0xffffffffu, exists && view.id[i] < first_partial));
    if (exists) {
      cta.list[i] = {scratch.sorted[i], static_cast<std::uint32_t>(view.rows[i])};
    }
  }
  const int partial = tile.length - tile.whole;
  if (partial > 0) tile.partial_id[0] = view.id[tile.whole];
  if (partial > 1) tile.partial_id[1] = view.id[tile.whole + 1];
  tile.steps = count_steps(p, tile);
}

}  // namespace msa::cuda::portable::prefill
