// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// \file
/// Seeded synthetic selections and page tables: the grid that every comparison uses, in plain
/// integer arithmetic, so that any language can make the same one (docs/workloads.md).

namespace msa::cli {

/// Ids in a generated row, and entries of it (−1 after the ids).
inline constexpr std::int64_t generated_topk = 16;

/// Sebastiano Vigna's SplitMix64.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// 0 … n − 1 (n below 2^32), by the high word of a 32-bit product.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(((next() >> 32) * static_cast<std::uint64_t>(n)) >> 32);
  }
  bool chance(std::int64_t permille) { return below(1000) < permille; }

 private:
  std::uint64_t state_;
};

/// Ids `[tokens, heads, 16]` of one request whose first token sits at `first_position` ≥ 0: a
/// Markov chain along the tokens, per head. A token's own block is always in; each other block of
/// the token before survives with probability `keep_permille` / 1000, in ascending order; the rest
/// is redrawn from the visible blocks. Ascending, then −1.
std::vector<std::int32_t> selection_rows(std::int64_t tokens, std::int64_t first_position,
                                         std::int64_t heads, std::int64_t keep_permille,
                                         std::uint64_t seed);

/// Ids `[batch · m, heads, 16]` of a decode batch whose requests all have `context` ≥ m keys. The
/// rows of one request overlap as keep 0.9 makes them.
std::vector<std::int32_t> decode_rows(std::int64_t batch, std::int64_t m, std::int64_t context,
                                      std::int64_t heads, std::uint64_t seed);

/// Pages `[batch, blocks]`, no page twice: the first batch · blocks ≤ pool steps of a Fisher-Yates
/// shuffle of the pool's pages.
std::vector<std::int32_t> table_rows(std::int64_t batch, std::int64_t blocks, std::int64_t pool,
                                     std::uint64_t seed);

/// FNV-1a over 32-bit ids, 64-bit state.
std::uint64_t ids_checksum(std::span<const std::int32_t> ids);

}  // namespace msa::cli
