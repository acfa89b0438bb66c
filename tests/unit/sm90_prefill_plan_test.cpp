// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "cuda/sm90/prefill/config.h"

/// \file
/// Schedule arithmetic of the SM90 prefill kernel, which needs no device.

namespace msa::cuda::sm90::prefill {
namespace {

TEST(PrefillPlan, ATilesTokensFitItsRowsItsBitsAndItsLists) {
  for (int group = 1; group <= max_group; ++group) {
    const int padded = 1 << padded_group_log2(group);
    ASSERT_GE(padded, group);
    ASSERT_EQ(group_rows % padded, 0) << "a token in two warpgroups";
    for (int topk = 1; topk <= max_topk; ++topk) {
      const int tokens = tokens_of_tile(group, topk, max_ids);
      ASSERT_GE(tokens, 1);
      ASSERT_LE(tokens * padded, tile_rows);
      ASSERT_LE(tokens, 32);
      ASSERT_LE(tokens * topk, max_ids);
    }
  }
  EXPECT_EQ(tokens_of_tile(16, 16, max_ids), 8);
  EXPECT_EQ(tokens_of_tile(8, 16, max_ids), 16);
  EXPECT_EQ(tokens_of_tile(4, 16, max_ids), 32);
  EXPECT_EQ(tokens_of_tile(16, 64, max_ids), 8);
  EXPECT_EQ(tokens_of_tile(1, 64, max_ids), 8);
}

/// The tiles that find_tile() would find for requests of these lengths: how often each token is
/// met.
std::vector<int> tokens_met(const std::vector<std::int64_t>& queries, std::int64_t behind,
                            int tile) {
  std::vector<std::int64_t> begins = {0};
  for (const std::int64_t n : queries) begins.push_back(begins.back() + n);
  const std::int64_t tokens = begins.back() + behind;
  const auto requests = static_cast<std::int64_t>(queries.size());
  std::vector<int> met(static_cast<std::size_t>(tokens));
  for (std::int64_t place = 0; place < places_of(tokens, requests, tile); ++place) {
    std::int64_t r = 0;
    while (r < requests && first_place(begins[r + 1], r + 1, tile) <= place) ++r;
    const std::int64_t first = begins[r] + (place - first_place(begins[r], r, tile)) * tile;
    const std::int64_t end = r < requests ? begins[r + 1] : tokens;
    for (std::int64_t t = first; t < std::min(first + tile, end); ++t) ++met[t];
  }
  return met;
}

TEST(PrefillPlan, EveryTokenLiesInOneTile) {
  for (const int tile : {8, 16, 32, 7}) {
    for (const std::int64_t behind : {0, 1, 40}) {
      for (const std::vector<std::int64_t>& queries :
           std::initializer_list<std::vector<std::int64_t>>{{},
                                                            {0},
                                                            {1},
                                                            {300},
                                                            {7, 0, 0, 1, 9, 8},
                                                            {0, 0, 64, 0},
                                                            {15, 17, 16, 1, 1, 1, 1, 129}}) {
        for (const int times : tokens_met(queries, behind, tile)) ASSERT_EQ(times, 1);
      }
    }
  }
}

TEST(PrefillPlan, PlacesExceedTheTilesByOneARequestAtMost) {
  for (std::int64_t n = 0; n < 100; ++n) {
    const std::int64_t tiles = (n + 7) / 8;
    EXPECT_GE(places_of(n, 1, 8), tiles);
    EXPECT_LE(places_of(n, 1, 8), tiles + 2);  // the request's, and that of the tokens behind it
  }
}

TEST(PrefillPlan, AShortRingStillReachesTheNextPage) {
  // V of a page, K of one that lies so far ahead, and all between them.
  for (const auto& [slots, pages] :
       {std::pair{Ring<DType::bf16>::slots, Ring<DType::bf16>::pages_ahead},
        {Ring<DType::e4m3>::slots, Ring<DType::e4m3>::pages_ahead}}) {
    EXPECT_LE(2 * pages, slots) << "from V of page p, 2 p + 1, to K of page p + pages";
    EXPECT_GE(pages, 1);
  }
}

}  // namespace
}  // namespace msa::cuda::sm90::prefill
