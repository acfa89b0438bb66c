// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "msa/index.h"

/// \file
/// The total order of candidate blocks, and the running list of the best of them. index_blocks and
/// select_blocks share it, so that their ids are one function of the scores.

namespace msa::cpu {

/// A candidate block as one number: larger is preferred, 0 is no candidate. From the top: forced
/// (1 bit), rank or score (32 bits), 2^31 − 1 − id (31 bits), so that no two blocks are equal.
using BlockKey = std::uint64_t;

inline constexpr int id_bits = 31;
inline constexpr std::uint64_t largest_id = (std::uint64_t{1} << id_bits) - 1;

constexpr std::int32_t id_of(BlockKey key) {
  return static_cast<std::int32_t>(largest_id - (key & largest_id));
}

/// Scores as integers in order of preference: NaN (1) < −inf < … < −0 = +0 < … < +inf.
inline std::uint32_t score_rank(float score) {
  if (score != score) return 1;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // −0 + 0 = +0
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

/// Makes the keys of one row's blocks.
class RowOrder {
 public:
  RowOrder() = default;
  /// Blocks [0, valid) are candidates.
  RowOrder(std::int64_t valid, const SelectRule& rule)
      : valid_(valid),
        first_local_(valid - std::min(rule.local_blocks, valid)),
        end_init_(std::min(rule.init_blocks, first_local_)) {}

  std::int64_t valid() const { return valid_; }

  BlockKey key(std::int64_t block, float score) const {
    const std::uint64_t id = largest_id - static_cast<std::uint64_t>(block);
    if (block >= first_local_) return forced(valid_ - 1 - block) | id;
    if (block < end_init_) return forced(valid_ - first_local_ + block) | id;
    return std::uint64_t{score_rank(score)} << id_bits | id;
  }

 private:
  static BlockKey forced(std::int64_t rank) {
    return std::uint64_t{1} << 63 | (std::uint64_t{0xffffffff} - static_cast<std::uint64_t>(rank))
                                        << id_bits;
  }

  std::int64_t valid_ = 0;
  std::int64_t first_local_ = 0;
  std::int64_t end_init_ = 0;
};

/// Adds a candidate to `best[topk]`, the best so far in descending order, 0 where there is none.
inline void offer(BlockKey* best, std::int64_t topk, BlockKey key) {
  if (key <= best[topk - 1]) return;
  std::int64_t i = topk - 1;
  for (; i > 0 && best[i - 1] < key; --i) best[i] = best[i - 1];
  best[i] = key;
}

/// Writes the ids of a list in ascending order, then −1.
inline void write_ids(const BlockKey* best, std::int64_t topk, std::int32_t* to,
                      std::int64_t stride) {
  std::array<std::int32_t, max_topk> ids;
  std::int64_t count = 0;
  while (count < topk && best[count] != 0) {
    ids[count] = id_of(best[count]);
    ++count;
  }
  std::sort(ids.begin(), ids.begin() + count);
  for (std::int64_t i = 0; i < topk; ++i) to[i * stride] = i < count ? ids[i] : -1;
}

/// The score of one list where heads share it: the largest, or NaN if any is.
inline float larger_score(float a, float b) {
  if (a != a) return a;
  return b != b || b > a ? b : a;
}

}  // namespace msa::cpu
