// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/arithmetic.h"
#include "msa/types.h"

/// \file
/// Schedule arithmetic of the indexer's score kernels: pure functions of integers, the same on host
/// and device.
///
/// A tile is some rows of one request with all their index heads, a column of the products each:
/// the m rows of a decode request, or `tile_tokens` neighbours of a prefill request. A unit is a
/// page of keys that a tile reads. All units of a call stand in one sequence, tile after tile, and
/// every CTA takes an equal slice of it. A score is a function of its query and its block alone, so
/// that no slice changes a bit.

namespace msa::cuda {

inline constexpr int max_columns = 256;

/// Columns that a kernel is compiled for.
MSA_HOST_DEVICE constexpr int padded_columns(int columns) {
  int padded = 8;
  while (padded < columns) padded *= 2;
  return padded;
}

/// log2 of the prefill tokens of a tile: a page's tokens are a multiple of a tile's.
MSA_HOST_DEVICE constexpr int tile_tokens_log2(int heads) {
  int log2 = 7;
  while (heads << log2 > max_columns) --log2;
  return log2;
}
static_assert(1 << tile_tokens_log2(1) == page_size);

/// Sum of ceil(i / 2^log2) for i from 1 to n.
MSA_HOST_DEVICE constexpr std::int64_t sum_of_quotients(std::int64_t n, int log2) {
  if (n <= 0) return 0;
  const std::int64_t whole = n >> log2, rest = n & ((1 << log2) - 1);
  return (whole * (whole + 1) / 2 << log2) + rest * (whole + 1);
}

/// The tiles of one prefill request, which see more and more.
struct TileRun {
  /// `context`: keys before the first token. Tiles that see `skip` pages or less read none.
  MSA_HOST_DEVICE constexpr TileRun(std::int64_t context, int tokens_log2, std::int64_t skip)
      : first((context + (1 << tokens_log2) - 1) >> tokens_log2),
        log2(7 - tokens_log2),
        end_skipped(skip << log2) {}

  /// Units of the first `tiles` tiles; a tile is counted as if it were full.
  MSA_HOST_DEVICE constexpr std::int64_t units(std::int64_t tiles) const {
    return below(first + tiles) - below(first);
  }
  /// The tile of `tiles` that unit `unit` < units(tiles) belongs to.
  MSA_HOST_DEVICE constexpr std::int64_t tile_of(std::int64_t unit, std::int64_t tiles) const {
    std::int64_t low = 0, high = tiles;
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (units(middle) <= unit ? low : high) = middle;
    }
    return low;
  }

 private:
  MSA_HOST_DEVICE constexpr std::int64_t below(std::int64_t n) const {
    return sum_of_quotients(n, log2) - sum_of_quotients(n < end_skipped ? n : end_skipped, log2);
  }

  std::int64_t first;        // tiles before the request's, if its keys were tiled from the start
  int log2;                  // of the tiles of a page
  std::int64_t end_skipped;  // tiles with `skip` pages or less
};

/// Equal slices of a sequence of units, one a CTA: their sizes differ by one at most.
class Slices {
 public:
  /// `by_ctas` divides by `ctas`, of which there are some hundreds.
  MSA_HOST_DEVICE constexpr Slices(std::int64_t units, int ctas, const Divisor& by_ctas)
      : by_ctas_(by_ctas),
        each_(units <= INT32_MAX ? by_ctas.quotient(static_cast<int>(units)) : units / ctas),
        rest_(static_cast<int>(units - each_ * ctas)) {}

  /// Where CTA `cta`'s begins.
  MSA_HOST_DEVICE constexpr std::int64_t begin(int cta) const {
    return each_ * cta + by_ctas_.quotient(rest_ * cta);
  }

 private:
  Divisor by_ctas_;
  std::int64_t each_;
  int rest_;
};

/// A CTA's slice of all units, and how far it is found.
struct SliceState {
  std::int64_t at, end;  // units of the call
  std::int64_t below;    // units of the requests before `first`
  std::int64_t first;    // request at hand
};

/// Requests are counted by so many threads; a bucket of them each.
inline constexpr int buckets = 128;

/// Pages of `keys` keys.
MSA_HOST_DEVICE constexpr std::int64_t pages_of(std::int64_t keys) {
  return (keys + page_size - 1) / page_size;
}

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

}  // namespace msa::cuda
