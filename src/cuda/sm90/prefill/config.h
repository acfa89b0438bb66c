// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/common/attend/block_list.h"
#include "cuda/sm90/prefill/plan.h"
#include "msa/types.h"

/// \file
/// Sizes of the prefill kernel: threads, and who owns which byte of shared memory.

namespace msa::cuda::sm90::prefill {

inline constexpr int warpgroup = 128;
/// Two warpgroups compute, each 64 rows of the tile.
inline constexpr int math_warps = groups * warpgroup / 32;
inline constexpr int math_threads = groups * warpgroup;

/// Who is at work for a cache type, and with how many registers.
template <DType type>
struct Team {
  static constexpr bool widens = size_of(type) == 1;
  /// One warp fetches and one makes lists. Six widen 8-bit pages: with two of them the products
  /// wait half of their time.
  static constexpr int widen_warps = widens ? 6 : 0;
  static constexpr int ahead_threads = widens ? 2 * warpgroup : warpgroup;
  static constexpr int threads = math_threads + ahead_threads;
  /// O, S and P are 160 of them.
  static constexpr int math_registers = widens ? 208 : 232;
  static constexpr int ahead_registers = widens ? 48 : 40;
  static_assert(math_threads * math_registers + ahead_threads * ahead_registers <= 65536,
                "the SM's register file");
};

/// What a CTA may have, one a SM.
inline constexpr std::size_t shared_bytes = 227 * 1024;

/// A box of the copy engine: 128 tokens by 128 bytes. A slot of the ring holds K or V of a page,
/// two boxes of 16-bit elements.
inline constexpr std::size_t box_bytes = page_size * 128;
inline constexpr std::size_t slot_bytes = 2 * box_bytes;
inline constexpr int max_slots = 5;

/// The ring of a cache type. K and V of 8-bit elements arrive in a ring of their own, a box each,
/// and are widened into the other.
template <DType type>
struct Ring {
  static constexpr bool widens = size_of(type) == 1;
  /// Two pages and a half: with two of them the warpgroups wait for pages.
  static constexpr int slots = widens ? 4 : max_slots;
  static constexpr int raw_slots = widens ? 3 : 0;
  static constexpr std::size_t bytes = slots * slot_bytes + raw_slots * box_bytes;
  /// A page whose V is still needed keeps the ring from reaching pages further ahead than this.
  static constexpr int pages_ahead = slots / 2;
};
inline constexpr int max_raw_slots = Ring<DType::e4m3>::raw_slots;
/// Bytes of 64 rows of Q, later of out.
inline constexpr std::size_t query_bytes = group_rows * head_dim * 2;
/// Lists are made one tile ahead.
inline constexpr int tiles_ahead = 2;

/// Named barriers of the CTA (0 is __syncthreads').
namespace barriers {
inline constexpr int own = 1;  // + warpgroup: all of it is here
}  // namespace barriers

/// A tile, and how long its list is; without rows it ends the CTA's work.
struct Tile : TilePlace {
  std::int32_t length;
};

/// The list of a tile: its distinct valid blocks, ascending.
struct TileList {
  ListView blocks;
  std::int32_t* page;  // [capacity]
  int length;
};

/// Shared memory outside the ring.
struct Shared {
  /// Of each warpgroup: [64][128] of 16 bits as two halves [64][64] of 128-byte rows, swizzled.
  /// The rows of out are collected in their place.
  alignas(1024) unsigned char queries[groups][query_bytes];
  float factor[tile_rows];  // of a row's logits, base 2; not negative
  alignas(16) Tile tile[tiles_ahead];

  alignas(8) std::uint64_t slot_full[max_slots];  // K or V is here, what nobody sees of V cleared
  std::uint64_t slot_free[max_slots];             // the math warps are done with it
  std::uint64_t list_full[tiles_ahead];           // the tile and its list are complete
  std::uint64_t tile_free[tiles_ahead];           // nobody needs any of it any more
  std::uint64_t raw_full[max_raw_slots];          // K or V is here
  std::uint64_t raw_free[max_raw_slots];          // it is widened
  std::uint64_t arrived;                          // V of a page that is not seen to its end
};

/// Bytes of the lists: three arrays each, and what they are made with.
MSA_HOST_DEVICE constexpr std::size_t list_bytes(int capacity) {
  return (static_cast<std::size_t>(capacity) * (3 * tiles_ahead + 2) + 2 * bitmap_words) *
         sizeof(std::int32_t);
}

template <DType type>
constexpr std::size_t dynamic_bytes(int capacity) {
  return Ring<type>::bytes + sizeof(Shared) + list_bytes(capacity);
}
static_assert(dynamic_bytes<DType::bf16>(max_ids) <= shared_bytes &&
                  dynamic_bytes<DType::e4m3>(max_ids) <= shared_bytes,
              "the longest lists fit");

}  // namespace msa::cuda::sm90::prefill
