// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "cuda/sm90/decode/plan.h"
#include "msa/types.h"

/// \file
/// Sizes of the decode kernel: threads, and who owns which byte of shared memory.

namespace msa::cuda::sm90::decode {

inline constexpr int math_warps = 4;  // one warpgroup
inline constexpr int math_threads = 32 * math_warps;
/// And a warpgroup of which one warp fetches: registers change hands by warpgroups.
inline constexpr int threads = 2 * math_threads;
/// One CTA a SM leaves the memory idle while it computes (3.6 of 4.5 TB/s); two reach 4.49.
inline constexpr int ctas_per_sm = 2;
/// Registers of a thread: 128 at the start, then more for S, O and its folds, and fewer for
/// fetching.
inline constexpr int math_registers = 200;
inline constexpr int fetch_registers = 56;
static_assert(math_threads * (math_registers + fetch_registers) * ctas_per_sm == 65536,
              "the SM's register file");
/// Of the SM's 228 KB, less 1 KB that the system takes for each CTA.
inline constexpr std::size_t shared_bytes = 228 * 1024 / ctas_per_sm - 1024;

/// A slot of the ring holds one box: 128 tokens by 128 bytes, a quarter page of 16-bit elements (K
/// or V, columns 0-63 or 64-127), half a page of 8-bit ones.
inline constexpr std::size_t slot_bytes = page_size * 128;
inline constexpr int max_slots = 8;

/// What the rows of an item chose: the distinct valid blocks, ascending.
struct ListView {
  std::int32_t* id;    // [capacity]
  std::int32_t* rows;  // [capacity] bit r: row r chose the block
};
/// Lists are made one item ahead of the products.
inline constexpr int lists = 2;

/// A partial result of a cluster's CTA: [n] rows of O [128], the sum as each of 32 threads has it
/// (8 w + g, see math.cuh), and the maximum; f32. Padded so that the lanes of a warp store to 32
/// banks. It lies in the ring, whose boxes have all been used by then.
inline constexpr int partial_sum = head_dim;
inline constexpr int partial_maximum = head_dim + 32;
inline constexpr int partial_stride = head_dim + 32 + 4;
MSA_HOST_DEVICE constexpr std::size_t partial_bytes(int n) {
  return static_cast<std::size_t>(n) * partial_stride * sizeof(float);
}

/// Shared memory outside the ring; n is the number of columns.
template <int n>
struct Shared {
  static constexpr int operand_bytes = n * head_dim * 2;

  /// Q, then P of one page: [n][128] of 16 bits as two halves [n][64] of 128-byte rows, swizzled.
  /// The rows of out are collected in P's place.
  alignas(1024) unsigned char queries[operand_bytes];
  alignas(1024) unsigned char weights[operand_bytes];
  /// (maximum, sum) of each column's result.
  alignas(16) float2 stats[n];
  /// Each warp's part of a column's maximum and sum.
  alignas(16) float maximum[n][math_warps];
  alignas(16) float sum[n][math_warps];
  alignas(16) float factor[n];      // of a column's logits, base 2
  alignas(16) std::int32_t row[n];  // of the item, that a column belongs to

  alignas(8) std::uint64_t slot_full[max_slots];  // the box has arrived
  std::uint64_t slot_free[max_slots];             // the four warps are done with the box
  std::uint64_t list_full[lists];                 // the list is complete
  std::uint64_t list_free[lists];                 // the four warps are done with the list
  std::int32_t list_count[lists];
};

/// Bits that sort the blocks of a request, 1,024 (131,072 tokens) at a time.
inline constexpr int bitmap_words = 32;
inline constexpr int max_rows = 16;  // of an item, as m is at most 16

/// Bytes of the lists: ids and rows of each, and what they are made with.
MSA_HOST_DEVICE constexpr std::size_t list_bytes(int capacity) {
  return (static_cast<std::size_t>(capacity) * (2 * lists + 3) + 2 * bitmap_words) *
         sizeof(std::int32_t);
}

/// Slots of the ring in what the rest leaves.
template <int n>
constexpr int ring_slots(int capacity) {
  constexpr std::size_t longest = sizeof(Shared<n>) + list_bytes(max_rows * max_topk);
  static_assert((shared_bytes - longest) / slot_bytes * slot_bytes >= partials * partial_bytes(n),
                "the ring of the longest lists holds the partial results");
  static_assert((shared_bytes - longest) / slot_bytes >= 3, "see Fetch::half");
  const std::size_t rest = sizeof(Shared<n>) + list_bytes(capacity);
  const auto slots = static_cast<int>((shared_bytes - rest) / slot_bytes);
  return slots < max_slots ? slots : max_slots;
}

template <int n>
constexpr std::size_t dynamic_bytes(int capacity) {
  return static_cast<std::size_t>(ring_slots<n>(capacity)) * slot_bytes + sizeof(Shared<n>) +
         list_bytes(capacity);
}

}  // namespace msa::cuda::sm90::decode
