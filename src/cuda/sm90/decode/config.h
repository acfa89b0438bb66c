// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/common/attend/block_list.h"
#include "cuda/sm90/decode/plan.h"
#include "msa/types.h"

/// \file
/// Sizes of the decode kernel: threads, and who owns which byte of shared memory.

namespace msa::cuda::sm90::decode {

inline constexpr int math_warps = 4;  // one warpgroup
inline constexpr int math_threads = 32 * math_warps;
/// And a warpgroup that works ahead: one warp makes lists and fetches, three bring the queries.
inline constexpr int threads = 2 * math_threads;
inline constexpr int query_warps = 3;
/// One CTA a SM leaves the memory idle while it computes (3.6 of 4.5 TB/s); two reach 4.49.
inline constexpr int ctas_per_sm = 2;
/// Registers of a thread: 128 at the start, then more for S, O and its folds, and fewer for working
/// ahead.
MSA_HOST_DEVICE constexpr int math_registers(int n, bool widens) {
  return n <= 16 && !widens ? 184 : 200;
}
MSA_HOST_DEVICE constexpr int ahead_registers(int n, bool widens) {
  return 256 - math_registers(n, widens);
}
static_assert(math_threads * 256 * ctas_per_sm == 65536, "the SM's register file");
/// Of the SM's 228 KB, less 1 KB that the system takes for each CTA.
inline constexpr std::size_t shared_bytes = 228 * 1024 / ctas_per_sm - 1024;

/// A slot of the ring holds one box: 128 tokens by 128 bytes, a quarter page of 16-bit elements (K
/// or V, columns 0-63 or 64-127), half a page of 8-bit ones.
inline constexpr std::size_t slot_bytes = page_size * 128;
inline constexpr int max_slots = 8;

/// Lists and queries are ready one item ahead of the products.
inline constexpr int items_ahead = 2;

/// Named barriers of the CTA (0 is __syncthreads'): what is true when they fire.
namespace barriers {
inline constexpr int math = 1;   // every math warp is here
inline constexpr int ready = 2;  // + item % 2: its list, its length and its queries are complete
inline constexpr int used = 4;   // + item % 2: the math warps need none of them any more
inline constexpr int ring = 6;   // the ring's barriers are initialized
}  // namespace barriers

/// One column of a partial result, as the CTAs of a cluster send it to each other: what each of the
/// 32 threads 8 w + g (see math.cuh) holds of O, then of the sum, then the maximum.
struct PartialColumn {
  float4 o[32];
  float sum[32];
  float maximum;
  static constexpr std::uint32_t sent_bytes = (32 * 4 + 32 + 1) * sizeof(float);
};
static_assert(sizeof(PartialColumn) % sizeof(float4) == 0);

/// Columns that a CTA receives in a cluster of `ctas`.
MSA_HOST_DEVICE constexpr int received_columns(int ctas, int n) {
  return ctas == 1 ? 0
                   : columns_of_cta(ctas, n) * groups * partials_of_group(segments(n) / ctas, n);
}

/// Shared memory outside the ring; n is the number of columns.
template <int n>
struct Shared {
  static constexpr int operand_bytes = n * head_dim * 2;

  /// Q of even items, then P of one page: [n][128] of 16 bits as two halves [n][64] of 128-byte
  /// rows, swizzled. The rows of out are collected in P's place.
  alignas(1024) unsigned char queries[operand_bytes];
  alignas(1024) unsigned char weights[operand_bytes];
  /// (maximum, sum) of each column's result.
  alignas(16) float2 stats[n];
  /// Each warp's part of a column's maximum and sum.
  alignas(16) float maximum[n][math_warps];
  alignas(16) float sum[n][math_warps];
  alignas(16) float factor[items_ahead][n];  // of a column's logits, base 2
  alignas(16) std::int32_t row[n];           // of the item, that a column belongs to

  alignas(8) std::uint64_t slot_full[max_slots];  // the box has arrived
  std::uint64_t slot_free[max_slots];             // the four warps are done with the box
  std::uint64_t received;  // every partial result of this CTA's columns is here
  std::int32_t list_length[items_ahead];
  std::int32_t seq_len[items_ahead];
};

/// Bytes of the lists: ids and rows of each, and what they are made with.
MSA_HOST_DEVICE constexpr std::size_t list_bytes(int capacity) {
  return (static_cast<std::size_t>(capacity) * (2 * items_ahead + 3) + 2 * bitmap_words) *
         sizeof(std::int32_t);
}

/// Bytes behind the ring: what is shared, then Q of odd items, or what a cluster's CTA receives for
/// its only item, then the lists.
template <int n>
constexpr std::size_t second_bytes(int ctas) {
  return ctas == 1 ? Shared<n>::operand_bytes : received_columns(ctas, n) * sizeof(PartialColumn);
}
template <int n>
constexpr std::size_t rest_bytes(int capacity, int ctas) {
  return sizeof(Shared<n>) + second_bytes<n>(ctas) + list_bytes(capacity);
}

/// Slots that the ring must have: K of a page and the first box of V, see Fetch::fetch.
MSA_HOST_DEVICE constexpr int least_slots(int element_bytes) { return element_bytes + 1; }

/// How many clusters of a size run at once, by size.
using Clusters = std::array<int, segments(8) + 1>;

/// Slots of the ring in what the rest leaves.
template <int n>
constexpr int ring_slots(int capacity, int ctas) {
  static_assert((shared_bytes - rest_bytes<n>(max_ids, 1)) / slot_bytes >= least_slots(2),
                "a CTA by itself has a ring for the longest lists");
  const std::size_t rest = rest_bytes<n>(capacity, ctas);
  if (rest > shared_bytes) return 0;
  const auto slots = static_cast<int>((shared_bytes - rest) / slot_bytes);
  return slots < max_slots ? slots : max_slots;
}

/// `resident` clusters of each size, without the sizes that leave the ring less than `least` slots.
template <int n>
constexpr Clusters clusters_with_ring(Clusters resident, int capacity, int least) {
  for (int size = 2; size <= segments(n); size *= 2) {
    if (ring_slots<n>(capacity, size) < least) resident[static_cast<std::size_t>(size)] = 0;
  }
  return resident;
}

template <int n>
constexpr std::size_t dynamic_bytes(int capacity, int ctas) {
  return static_cast<std::size_t>(ring_slots<n>(capacity, ctas)) * slot_bytes +
         rest_bytes<n>(capacity, ctas);
}

}  // namespace msa::cuda::sm90::decode
