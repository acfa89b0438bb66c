// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "cuda/portable/prefill/config.h"

/// \file
/// Schedule arithmetic of the portable prefill kernel, which needs no device. How tiles are
/// numbered is SM90's (sm90_prefill_plan_test.cpp).

namespace msa::cuda::portable::prefill {
namespace {

TEST(PortablePrefillPlan, ATilesTokensFitItsRowsItsBitsAndItsLists) {
  for (int group = 1; group <= max_group; ++group) {
    const int padded = 1 << padded_group_log2(group);
    ASSERT_GE(padded, group);
    ASSERT_EQ(row_tile % padded, 0) << "a token in two row tiles";
    for (int topk = 1; topk <= max_topk; ++topk) {
      const int tokens = tokens_of_tile(group, topk, max_ids);
      ASSERT_GE(tokens, 1);
      ASSERT_LE(tokens * padded, tile_rows);
      ASSERT_LE(tokens, 32);
      ASSERT_LT(tokens, page_size) << "ends in more than two blocks";
      ASSERT_LE(tokens * topk, max_ids);
      ASSERT_LE(dynamic_bytes<DType::bf16>(tokens * topk), shared_bytes);
      ASSERT_LE(dynamic_bytes<DType::e5m2>(tokens * topk), shared_bytes);
    }
  }
  EXPECT_EQ(tokens_of_tile(16, 16, max_ids), 8);
  EXPECT_EQ(tokens_of_tile(8, 16, max_ids), 16);
}

TEST(PortablePrefillPlan, AListIsMadeInTheRing) {
  // Five arrays of ids and 64 words of bits, see make_list().
  EXPECT_LE((5 * std::size_t{max_ids} + 64) * 4, ring_bytes);
}

struct CausalOrNot {
  bool causal;
};

TEST(PortablePrefillPlan, ATokenSeesTheKeysUpToItsOwn) {
  Tile tile{};
  tile.position = 130;
  EXPECT_EQ(tile.visible(CausalOrNot{true}, 1000, 0), 131);
  EXPECT_EQ(tile.visible(CausalOrNot{true}, 1000, 7), 138);
  EXPECT_EQ(tile.visible(CausalOrNot{true}, 133, 7), 133) << "metadata that contradicts itself";
  EXPECT_EQ(tile.visible(CausalOrNot{false}, 1000, 0), 1000);
  tile.position = -3;
  EXPECT_EQ(tile.visible(CausalOrNot{true}, 1000, 1), 0);
  EXPECT_EQ(tile.visible(CausalOrNot{true}, 1000, 2), 0);
  EXPECT_EQ(tile.visible(CausalOrNot{true}, 1000, 3), 1);
}

}  // namespace
}  // namespace msa::cuda::portable::prefill
