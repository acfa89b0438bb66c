// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/block_order.h"
#include "cuda/common/index/plan.h"
#include "msa/types.h"

/// \file
/// Sizes of the score kernel: warps, what each of them multiplies, and who owns which byte of
/// shared memory.

namespace msa::cuda::portable::index {

/// How keys and queries are multiplied.
struct Bf16Keys {
  static constexpr int key_bytes = 256;
  static constexpr int query_bytes = 256;  // of a column and plane
  static constexpr int planes = 1;         // numbers that a query element is the sum of
};
/// The same by f16 queries, each the sum of two bf16 numbers.
struct SplitKeys : Bf16Keys {
  static constexpr int planes = 2;
};
/// e4m3 widened to f16, which is exact, by queries scaled to f16.
struct WidenedKeys {
  static constexpr int key_bytes = 128;
  static constexpr int query_bytes = 256;
  static constexpr int planes = 1;
};
/// e4m3 by e4m3, in the tensor cores' own accumulator.
struct E4m3Keys {
  static constexpr int key_bytes = 128;
  static constexpr int query_bytes = 128;
  static constexpr int planes = 1;
};

/// Columns of the narrowest kernel: the rows of one product.
inline constexpr int least_columns = 16;

/// Columns that a kernel is compiled for.
constexpr int compiled_columns(int columns) {
  const int padded = padded_columns(columns);
  return padded < least_columns ? least_columns : padded;
}

/// Shared memory of a CTA, on every device; an SM of SM86, SM89 and SM120 has 102,400 bytes, of
/// which each CTA takes 1,024 more than it asks for.
inline constexpr std::size_t most_shared_bytes = 101'376;

/// A slot of the ring is a part of each of the CTA's warps.
inline constexpr int warp_slot_bytes = 4096;

/// Who multiplies what on n columns: warps take `columns` of them each, and those with the same
/// columns share a page's keys.
template <class Keys, int n>
struct Team {
  /// A warp's queries stay in registers, 128 of a lane at most.
  static constexpr int most_columns = 64 * 256 / (Keys::planes * 256);
  static constexpr int columns = n < most_columns ? n : most_columns;  // of a warp
  static constexpr int column_warps = n / columns;
  static constexpr int warps = column_warps < 4 ? 4 : column_warps;
  static constexpr int key_warps = warps / column_warps;
  static constexpr int threads = 32 * warps;

  /// Queries of 64 columns leave room for no third CTA.
  static constexpr int ctas = warps > 4 ? 1 : columns* Keys::planes >= 64 ? 2 : 3;
  static constexpr int slots = warps > 4 ? 2 : ctas == 2 ? 5 : 4;
  static constexpr int slot_bytes = warps * warp_slot_bytes;
  static constexpr int slot_keys = slot_bytes / Keys::key_bytes;
  static constexpr int slots_a_page = page_size / slot_keys;
  /// Of a slot, of each warp.
  static constexpr int warp_keys = slot_keys / key_warps;
  static_assert(slots_a_page * slot_keys == page_size && warp_keys % 16 == 0 && slots >= 2);
  /// Nobody else needs the keys that a warp asks for: no warp waits for another.
  static constexpr bool own_keys = column_warps == 1;
};

/// Where the warps of a page's keys meet with their maxima.
template <class Keys, int n>
struct Board {
  /// Pages whose maxima are collected before they are written: 32 bytes of a row of scores.
  static constexpr int pages = 8;
  /// Padded, as a column's pages are read together.
  static constexpr int stride = n + 32 / pages;
  float maxima[Team<Keys, n>::key_warps][pages][stride];
};

/// What is known of a column of the products.
struct Column {
  float factor;          // of its scores
  std::int32_t visible;  // keys that its row sees
};

/// Segments that are found together.
inline constexpr int segments_ahead = 8;

/// The CTA's slice of all units, and the segments of it that are found.
struct Work {
  SliceState slice;
  std::int32_t count;  // of `segment`
  Segment segment[segments_ahead];
};

/// Shared memory behind the ring.
template <class Keys, int n>
struct Shared {
  Board<Keys, n> board;
  Column column[n];
  Work work;
  std::int64_t bucket_units[buckets];
};

/// Of a kernel that keeps lists: max_topk blocks of every head.
inline constexpr std::size_t list_bytes =
    std::size_t{max_index_heads} * max_topk * sizeof(BlockKey);

template <class Keys, int n>
constexpr std::size_t shared_bytes(bool keeps_lists) {
  const std::size_t bytes = std::size_t{Team<Keys, n>::slots} * Team<Keys, n>::slot_bytes +
                            sizeof(Shared<Keys, n>) + (keeps_lists ? list_bytes : 0);
  return bytes;
}

/// Whether a kernel fits on every device.
template <class Keys>
constexpr bool all_fit() {
  return shared_bytes<Keys, 16>(true) <= most_shared_bytes &&
         shared_bytes<Keys, 32>(false) <= most_shared_bytes &&
         shared_bytes<Keys, 64>(false) <= most_shared_bytes &&
         shared_bytes<Keys, 128>(false) <= most_shared_bytes &&
         shared_bytes<Keys, 256>(false) <= most_shared_bytes;
}
static_assert(all_fit<Bf16Keys>() && all_fit<SplitKeys>() && all_fit<WidenedKeys>() &&
              all_fit<E4m3Keys>());

}  // namespace msa::cuda::portable::index
