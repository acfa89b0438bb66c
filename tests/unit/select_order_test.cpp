// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu/select.h"

namespace msa::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

TEST(SelectOrder, ScoresRankFromPlusInfinityToNaN) {
  const float descending[] = {infinity, 3e38f, 1.0000001f, 1.0f,      1e-45f,      0.0f,
                              -1e-45f,  -1.0f, -3e38f,     -infinity, not_a_number};
  for (std::size_t i = 1; i < std::size(descending); ++i) {
    EXPECT_GT(score_rank(descending[i - 1]), score_rank(descending[i])) << i;
    EXPECT_EQ(score_of_rank(score_rank(descending[i - 1])), descending[i - 1]) << i;
  }
  EXPECT_EQ(score_rank(-0.0f), score_rank(0.0f));
  EXPECT_EQ(score_rank(not_a_number), score_rank(-not_a_number));
  EXPECT_TRUE(std::isnan(score_of_rank(score_rank(not_a_number))));
}

TEST(SelectOrder, TiesGoToTheLowerId) {
  const RowOrder order(1000, {.init_blocks = 0, .local_blocks = 0});
  EXPECT_GT(order.key(3, 1.0f), order.key(4, 1.0f));
  EXPECT_GT(order.key(3, -0.0f), order.key(4, 0.0f));
  EXPECT_GT(order.key(3, not_a_number), order.key(4, -not_a_number));
  EXPECT_GT(order.key(999, 1.0f), order.key(0, 0.0f));
}

TEST(SelectOrder, ForcedBlocksComeFirstLocalOnesBeforeInitialOnes) {
  const RowOrder order(10, {.init_blocks = 2, .local_blocks = 3});
  const std::int64_t ranks[] = {9, 8, 7, 0, 1};
  for (std::size_t i = 1; i < std::size(ranks); ++i) {
    EXPECT_GT(order.key(ranks[i - 1], not_a_number), order.key(ranks[i], infinity));
  }
  EXPECT_GT(order.key(1, not_a_number), order.key(2, infinity));
}

TEST(SelectOrder, AnyRuleAndTheLastIdsAreSafe) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const RowOrder order(most, {.init_blocks = most, .local_blocks = most});
  for (std::int64_t b : {std::int64_t{0}, std::int64_t{1}, most - 1}) {
    const BlockKey key = order.key(b, not_a_number);
    EXPECT_NE(key, 0u);
    EXPECT_EQ(id_of(key), b);
  }
  const RowOrder plain(most, {.init_blocks = 0, .local_blocks = 0});
  EXPECT_NE(plain.key(most - 1, not_a_number), 0u);  // 0 means that there is no candidate
}

TEST(SelectOrder, ListsKeepTheBestWhateverTheOrderAndTheSplit) {
  std::mt19937 random(1);
  for (std::int64_t topk : {1, 7, 64}) {
    std::vector<BlockKey> keys;
    for (int i = 0; i < 300; ++i) keys.push_back(random() % 1000 * 1000 + 1 + i);
    std::vector<BlockKey> want = keys;
    std::sort(want.rbegin(), want.rend());
    want.resize(static_cast<std::size_t>(topk));
    for (int round = 0; round < 5; ++round) {
      std::shuffle(keys.begin(), keys.end(), random);
      std::vector<BlockKey> first(want.size()), second(want.size());
      for (std::size_t i = 0; i < keys.size(); ++i) {
        offer(i % 3 == 0 ? first.data() : second.data(), topk, keys[i]);
      }
      for (BlockKey key : second) offer(first.data(), topk, key);
      EXPECT_EQ(first, want);
    }
  }
}

TEST(SelectOrder, IdsAreWrittenAscendingThenMinusOne) {
  const RowOrder order(100, {.init_blocks = 0, .local_blocks = 1});
  std::vector<BlockKey> best(5);
  for (std::int64_t b : {50, 99, 7}) offer(best.data(), 5, order.key(b, 1.0f));
  std::vector<std::int32_t> ids(10, -7);
  write_ids(best.data(), 5, ids.data(), 2);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{7, -7, 50, -7, 99, -7, -1, -7, -1, -7}));
}

TEST(SelectOrder, ReducedScoresAreNaNIfAnyHeadIs) {
  EXPECT_EQ(larger_score(1, 2), 2);
  EXPECT_EQ(larger_score(2, -infinity), 2);
  EXPECT_TRUE(std::isnan(larger_score(not_a_number, infinity)));
  EXPECT_TRUE(std::isnan(larger_score(infinity, not_a_number)));
}

}  // namespace
}  // namespace msa::cpu
