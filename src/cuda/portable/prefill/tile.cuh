// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/block_list.cuh"
#include "cuda/common/attend/find_tile.cuh"
#include "cuda/portable/prefill/config.h"
#include "cuda/portable/prefill/params.h"

/// \file
/// A CTA's view of its shared memory, and the warp that makes a tile's list.

namespace msa::cuda::portable::prefill {

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
    return reinterpret_cast<std::int32_t*>(bits + 2 * bitmap_words) + i * p.capacity;
  };
  const ListView view = {array(0), array(1)};
  const ListScratch scratch = {array(2), array(3), array(4), bits, bits + bitmap_words};
  tile.length = build_list(p, tile, tile.seq_len, view, scratch);
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
