// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/block_order.h"
#include "cuda/sm90/index/plan.h"
#include "msa/types.h"

/// \file
/// Sizes of the score kernel: threads, and who owns which byte of shared memory.

namespace msa::cuda::sm90::index {

/// How keys and queries are multiplied.
struct Bf16Keys {
  static constexpr int boxes = 2;          // of a page
  static constexpr int query_bytes = 256;  // of a column and plane
  static constexpr int planes = 1;         // numbers that a query element is the sum of
  static constexpr bool widens = false;
};
/// The same by f16 queries, each the sum of two bf16 numbers.
struct SplitKeys : Bf16Keys {
  static constexpr int planes = 2;
};
/// e4m3 by e4m3, in the tensor cores' own accumulator.
struct E4m3Keys {
  static constexpr int boxes = 1;
  static constexpr int query_bytes = 128;
  static constexpr int planes = 1;
  static constexpr bool widens = false;
};
/// e4m3 widened to f16 in registers, which is exact, by queries scaled to f16.
struct WidenedKeys {
  static constexpr int boxes = 1;
  static constexpr int query_bytes = 256;
  static constexpr int planes = 1;
  static constexpr bool widens = true;
};

/// A box of the copy engine: 128 tokens by 128 bytes. A slot of the ring holds a page.
inline constexpr std::size_t box_bytes = page_size * 128;
inline constexpr int max_slots = 8;
inline constexpr int segments_ahead = 2;

inline constexpr int warpgroup = 128;
inline constexpr int warpgroup_warps = 4;

/// Who is at work on n columns.
template <int n>
struct Team {
  /// Two warpgroups share the columns where one's sums would fill its registers.
  static constexpr int warpgroups = n <= 64 ? 1 : 2;
  static constexpr int columns = n / warpgroups;  // of a warpgroup
  static constexpr int math_threads = warpgroups * warpgroup;
  static constexpr int math_warps = math_threads / 32;
  /// One warp fetches and one makes segments; registers are handed over by whole warpgroups.
  static constexpr bool hands_over = warpgroups == 2;
  static constexpr int threads = math_threads + (hands_over ? warpgroup : 64);
  static constexpr int math_registers = 232, ahead_registers = 40;
  /// CTAs of a SM: one's products beside the other's pages.
  static constexpr int ctas = warpgroups == 1 ? 2 : 1;
  static constexpr std::size_t shared_bytes = (ctas == 2 ? 113 : 227) * std::size_t{1024};
  /// Pages whose maxima are collected before they are written: 32 or 16 bytes of a row
  /// of scores.
  static constexpr int board_pages = n <= 64 ? 8 : 4;
  /// Floats of a page's maxima, of each of four warps; padded, as a column's pages are read
  /// together.
  static constexpr int board_stride = warpgroup_warps * columns + 32 / board_pages;
};

/// Named barriers of the CTA (0 is __syncthreads').
namespace barriers {
inline constexpr int math = 1;
inline constexpr int warpgroups = 2;  // + warpgroup: all of it is here
}  // namespace barriers

/// Pages [page_begin, page_end) of a tile.
struct Segment {
  std::int64_t first_token;  // of the call
  std::int64_t position;     // of it, in the request
  std::int32_t request;
  std::int32_t rows;     // of the tile; 0 ends the CTA's work
  std::int32_t seq_len;  // of the request
  std::int32_t page_begin, page_end;

  /// Keys that the tile's row sees.
  MSA_HOST_DEVICE std::int32_t visible(int row) const {
    const std::int64_t seen = position + row + 1;
    return static_cast<std::int32_t>(seen < 0 ? 0 : seen < seq_len ? seen : seq_len);
  }
};

/// Requests are counted by so many threads; a bucket of them each.
inline constexpr int buckets = 128;

/// Shared memory outside the queries and the ring.
template <int n>
struct Shared {
  alignas(16) float board[Team<n>::warpgroups][Team<n>::board_pages][Team<n>::board_stride];
  std::int32_t visible[n];  // keys that a column sees
  float factor[n];          // of a column's scores
  Segment segment[segments_ahead];
  std::int32_t slot_page[max_slots];  // −1: the block's cell names none
  std::int64_t bucket_units[buckets];

  alignas(8) std::uint64_t slot_full[max_slots];  // the page is here
  std::uint64_t slot_free[max_slots];             // the math warps are done with it
  std::uint64_t segment_full[segments_ahead];     // it is described
  std::uint64_t segment_free[segments_ahead];     // nobody needs it any more
};

template <class Keys, int n>
constexpr std::size_t query_bytes = std::size_t{n * Keys::query_bytes} * Keys::planes;
/// Slots of the ring that fit beside everything else.
template <class Keys, int n>
constexpr int slots_beside(std::size_t extra = 0) {
  const std::size_t rest = Team<n>::shared_bytes - query_bytes<Keys, n> - sizeof(Shared<n>) - extra;
  const int fitting = static_cast<int>(rest / (Keys::boxes * box_bytes));
  return fitting < max_slots ? fitting : max_slots;
}
static_assert(slots_beside<Bf16Keys, 256>() >= 4 && slots_beside<SplitKeys, 256>() >= 2 &&
                  slots_beside<SplitKeys, 64>() >= 2 && slots_beside<Bf16Keys, 8>() == 3,
              "the ring holds pages ahead");

template <class Keys, int n>
constexpr std::size_t dynamic_bytes(int slots, std::size_t extra = 0) {
  return query_bytes<Keys, n> + static_cast<std::size_t>(slots) * Keys::boxes * box_bytes +
         sizeof(Shared<n>) + extra;
}

}  // namespace msa::cuda::sm90::index
