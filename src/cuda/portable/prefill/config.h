// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/attend/tiles.h"
#include "msa/types.h"

/// \file
/// Threads, tiles and shared memory of the portable prefill kernel: pure functions of integers, the
/// same on host and device.
///
/// A tile is some consecutive tokens of one request with the query heads of one KV head: 128 rows
/// of the products, 32 for each of four warps, as two row tiles of mma.sync. It walks the ascending
/// union of the blocks that its tokens chose, half a page at a time.

namespace msa::cuda::portable::prefill {

inline constexpr int warps = 4;
inline constexpr int threads = warps * 32;
inline constexpr int row_tile = 16;  // rows of mma.sync's A
inline constexpr int row_tiles = 2;  // of a warp: what is loaded of K and V meets both
inline constexpr int warp_rows = row_tile * row_tiles;
static_assert(tile_rows == warps * warp_rows);
/// The kernel has 255 registers: O of a warp's rows is 128 of them, S 64. Two CTAs fill an SM90's
/// register file, and one CTA's loads and maxima lie beside the other's products.
inline constexpr int ctas_per_sm = 2;

/// What any device from SM80 on lets a CTA have.
inline constexpr std::size_t shared_bytes = 101376;

inline constexpr int half_keys = 64;   // of half a page
inline constexpr int row_bytes = 256;  // of 128 elements of 16 bits
/// K or V of half a page as operands of 16 bits.
inline constexpr std::size_t operand_bytes = std::size_t{half_keys} * row_bytes;
inline constexpr std::size_t query_bytes = std::size_t{tile_rows} * row_bytes;

/// What lies between the queries and the list. 16-bit caches: two stages, of K and V of half a page
/// each. 8-bit caches: two stages of 8-bit elements as they arrive, and what they are widened to.
template <DType type>
struct Ring {
  static constexpr bool widens = size_of(type) == 1;
  static constexpr int stages = 2;
  static constexpr std::size_t element_bytes = size_of(type);
  static constexpr std::size_t stage_bytes = operand_bytes * element_bytes;  // K, then V
  static constexpr std::size_t widened_bytes = widens ? 2 * operand_bytes : 0;
  static constexpr std::size_t bytes = stages * stage_bytes + widened_bytes;
};
inline constexpr std::size_t ring_bytes = Ring<DType::bf16>::bytes;
static_assert(Ring<DType::e4m3>::bytes <= ring_bytes);

/// A block of a tile's list: its page, and the tokens of the tile that chose it, a bit each.
struct Entry {
  std::int32_t page;
  std::uint32_t tokens;
};

/// A tile, and its list.
struct Tile : TilePlace {
  std::int32_t length;  // of the list
  std::int32_t whole;   // blocks at the list's beginning that every token sees to their end
  /// Of the blocks behind them: the tokens of a tile are fewer than a block's keys, so that they
  /// end in two blocks at most.
  std::int32_t partial_id[2];
  std::int32_t steps;  // half pages of the list that some token sees
};
inline constexpr std::size_t tile_bytes = 64;
static_assert(sizeof(Tile) <= tile_bytes);

/// A row's factor of logits.
inline constexpr std::size_t factor_bytes = tile_rows * sizeof(float);

/// Blocks of a list: what is left.
inline constexpr int max_ids = 312;
static_assert(query_bytes + ring_bytes + tile_bytes + factor_bytes + max_ids * sizeof(Entry) <=
                  shared_bytes,
              "the kernel fits every device from SM80 on");

template <DType type>
constexpr std::size_t dynamic_bytes(int capacity) {
  return query_bytes + Ring<type>::bytes + tile_bytes + factor_bytes + capacity * sizeof(Entry);
}

}  // namespace msa::cuda::portable::prefill
