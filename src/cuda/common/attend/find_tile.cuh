// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/tiles.h"
#include "cuda/common/warp.cuh"

/// \file
/// Tiles from their numbers, by one warp. Params is an AttendCall and a Tiling.

namespace msa::cuda {

/// Where request `r` begins among the prefill tokens; the one behind the last has those of none.
template <class Params>
__device__ std::int64_t begin_of(const Params& p, std::int64_t r) {
  const std::int64_t begin = p.batch.prefills == 0 ? 0 : p.batch.cu_seqlens_q[r];
  return min(max(begin, std::int64_t{0}), p.tokens);
}

/// The last request whose places begin at or before `place`; all lanes of a warp look at once.
template <class Params>
__device__ std::int64_t find_request(const Params& p, std::int64_t place) {
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

/// Tile of an item, a place of a head; without tokens where the place is empty. Items go head by
/// head, so that the CTAs at work share pages, and from the last tokens to the first, which see the
/// least and fill up the end.
template <class Params>
__device__ TilePlace find_tile(const Params& p, std::int64_t item) {
  TilePlace tile{};
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

}  // namespace msa::cuda
