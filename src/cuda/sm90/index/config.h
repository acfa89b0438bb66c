// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/block_order.h"
#include "cuda/common/index/plan.h"
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
/// e4m3 widened to f16, which is exact, by queries scaled to f16.
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
  /// One warp fetches, one makes segments, and two may widen; registers are handed over by whole
  /// warpgroups.
  static constexpr bool hands_over = warpgroups == 2;
  static constexpr int threads = math_threads + (hands_over ? warpgroup : 64);
  static constexpr int math_registers = 224, ahead_registers = 56;
  /// CTAs of a SM: one's products beside the other's pages.
  static constexpr int ctas = warpgroups == 1 ? 2 : 1;
  /// Of the ring. More pages on their way to two CTAs bring no more of them, but let some CTAs end
  /// before others: 16 requests of 32K in e4m3 took 23.7 µs with 2 and 24.9 with 7.
  static constexpr int most_slots = warpgroups == 1 ? 2 : max_slots;
  static constexpr std::size_t shared_bytes = (ctas == 2 ? 113 : 227) * std::size_t{1024};
  /// With as many no SM takes more than `ctas`. Else a grid that starts while the call before ends
  /// crowds on the SMs that are free first: behind write_cache 16 requests of 128K in bf16, whose
  /// CTAs need 73 KB, took 144 µs instead of 128 (H200).
  static constexpr std::size_t least_bytes = (228 * 1024 / (ctas + 1) - 1024) / 128 * 128 + 128;
  static_assert((least_bytes + 1024) * (ctas + 1) > 228 * 1024 && least_bytes <= shared_bytes);
};

/// Whether warps ahead widen pages in shared memory, once for both warpgroups; elsewhere a warp
/// widens what it multiplies, in registers.
template <class Keys, int n>
constexpr bool widens_ahead = Team<n>::warpgroups == 2 && Keys::widens;
inline constexpr int widening_warps = 2;
inline constexpr int widened_slots = 3;
inline constexpr std::size_t widened_bytes = 2 * box_bytes;  // of a page
inline constexpr std::size_t all_widened_bytes = widened_slots * widened_bytes;

/// Where one warpgroup's warps meet with the maxima of pages.
template <int n>
struct Board {
  /// Pages whose maxima are collected before they are written: 32 bytes of a row of scores.
  static constexpr int pages = 8;
  /// Of a page, from each of four warps; padded, as a column's pages are read together.
  static constexpr int stride = warpgroup_warps * n + 32 / pages;
  alignas(16) float maxima[pages][stride];
};
/// Two warpgroups have their tile along wgmma's rows and need none.
template <int n>
requires(Team<n>::warpgroups == 2) struct Board<n> {
};

/// Named barriers of the CTA (0 is __syncthreads').
namespace barriers {
inline constexpr int math = 1;
inline constexpr int board = 2;
}  // namespace barriers

/// What is known of the slots of a ring of pages.
struct PageRing {
  std::int32_t page[max_slots];  // −1: the block's cell names none

  alignas(8) std::uint64_t full[max_slots];  // the page is here
  std::uint64_t free[max_slots];             // nobody needs it any more
};

/// Shared memory outside the queries and the rings.
template <int n>
struct Shared {
  Board<n> board;
  std::int32_t visible[n];  // keys that a column sees
  float factor[n];          // of a column's scores
  Segment segment[segments_ahead];
  std::int64_t bucket_units[buckets];
  PageRing fetched, widened;

  alignas(8) std::uint64_t segment_full[segments_ahead];  // it is described
  std::uint64_t segment_free[segments_ahead];             // nobody needs it any more
};

template <class Keys, int n>
constexpr std::size_t query_bytes = std::size_t{n * Keys::query_bytes} * Keys::planes;
/// Of the ring of widened pages.
template <class Keys, int n>
constexpr std::size_t widened_ring_bytes = widens_ahead<Keys, n> ? all_widened_bytes : 0;
/// Slots of the ring that fit beside everything else.
template <class Keys, int n>
constexpr int slots_beside(std::size_t extra = 0) {
  const std::size_t taken =
      query_bytes<Keys, n> + widened_ring_bytes<Keys, n> + sizeof(Shared<n>) + extra;
  if (taken > Team<n>::shared_bytes) return 0;
  const auto fitting =
      static_cast<int>((Team<n>::shared_bytes - taken) / (Keys::boxes * box_bytes));
  return fitting < Team<n>::most_slots ? fitting : Team<n>::most_slots;
}
static_assert(slots_beside<Bf16Keys, 256>() >= 4 && slots_beside<SplitKeys, 256>() >= 2 &&
                  slots_beside<SplitKeys, 64>() >= 2 && slots_beside<WidenedKeys, 256>() >= 3,
              "the ring holds pages ahead");

template <class Keys, int n>
constexpr std::size_t dynamic_bytes(int slots, std::size_t extra = 0) {
  return query_bytes<Keys, n> + static_cast<std::size_t>(slots) * Keys::boxes * box_bytes +
         widened_ring_bytes<Keys, n> + sizeof(Shared<n>) + extra;
}

}  // namespace msa::cuda::sm90::index
