// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "msa/index.h"

/// \file
/// The total order of candidate blocks: the one text that every backend's choice of blocks follows.
/// All of it is constexpr, so that device code may call it too.

namespace msa {

/// A candidate block as one number: larger is preferred, 0 is no candidate. From the top: forced
/// (1 bit), rank or score (32 bits), 2^31 − 1 − id (31 bits), so that no two blocks are equal.
using BlockKey = std::uint64_t;

inline constexpr int block_id_bits = 31;
inline constexpr std::uint64_t largest_block_id = (std::uint64_t{1} << block_id_bits) - 1;

constexpr std::int32_t id_of(BlockKey key) {
  return static_cast<std::int32_t>(largest_block_id - (key & largest_block_id));
}

/// Scores as integers in order of preference: NaN (1) < −inf < … < −0 = +0 < … < +inf.
constexpr std::uint32_t score_rank(float score) {
  if (score != score) return 1;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // −0 + 0 = +0
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

/// The score of a rank; NaN that of 1.
constexpr float score_of_rank(std::uint32_t rank) {
  if (rank == 1) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(rank ^ (rank >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

/// The score of one list where heads share it: the largest, or NaN if any is.
constexpr float larger_score(float a, float b) {
  if (a != a) return a;
  return b != b || b > a ? b : a;
}

/// Makes the keys of one row's blocks.
class RowOrder {
 public:
  constexpr RowOrder() = default;
  /// Blocks [0, valid) are candidates.
  constexpr RowOrder(std::int64_t valid, const SelectRule& rule)
      : valid_(valid),
        first_local_(valid - smaller(rule.local_blocks, valid)),
        end_init_(smaller(rule.init_blocks, first_local_)) {}

  constexpr std::int64_t valid() const { return valid_; }
  /// Scores decide on the blocks [first_free, end_free); those on both sides are forced.
  constexpr std::int64_t first_free() const { return end_init_; }
  constexpr std::int64_t end_free() const { return first_local_; }
  constexpr std::int64_t forced_count() const { return valid_ - first_local_ + end_init_; }
  /// Key of the forced block that `rank` others precede, 0 where there are no more.
  constexpr BlockKey forced_key(std::int64_t rank) const {
    if (rank >= forced_count()) return 0;
    const std::int64_t local = valid_ - first_local_;
    return key(rank < local ? valid_ - 1 - rank : rank - local, 0);
  }

  constexpr BlockKey key(std::int64_t block, float score) const {
    const std::uint64_t id = largest_block_id - static_cast<std::uint64_t>(block);
    if (block >= first_local_) return forced(valid_ - 1 - block) | id;
    if (block < end_init_) return forced(valid_ - first_local_ + block) | id;
    return std::uint64_t{score_rank(score)} << block_id_bits | id;
  }

 private:
  static constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return b < a ? b : a; }
  static constexpr BlockKey forced(std::int64_t rank) {
    return std::uint64_t{1} << 63 | (std::uint64_t{0xffffffff} - static_cast<std::uint64_t>(rank))
                                        << block_id_bits;
  }

  std::int64_t valid_ = 0;
  std::int64_t first_local_ = 0;
  std::int64_t end_init_ = 0;
};

}  // namespace msa
