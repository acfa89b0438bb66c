// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/attend_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <vector>

/// \file
/// What the CPU's attend computes: every row in one tile, every page in one place of a tile's list.

namespace msa::cpu {
namespace {

/// A call of two decode requests (m 3) and three prefills, one of them without rows, then padding.
/// Selections are in any order, with holes, repeats, ids past what a row sees and beyond the table.
class Problem {
 public:
  Problem(std::int64_t lists, std::int64_t world) : lists_(lists) {
    std::mt19937 random(7);
    for (std::size_t i = 0; i < selection_.size(); ++i) {
      selection_[i] = static_cast<std::int32_t>(random() % 40) - 4;
      if (random() % 16 == 0) selection_[i] = std::numeric_limits<std::int32_t>::max();
    }
    for (std::int32_t& page : table_) {
      page = static_cast<std::int32_t>(random() % 120) - 10;  // of 100 pages
    }
    AttendArgs& a = args_;
    a.q = ConstTensor::dense(rows_.data(), DType::bf16, {tokens, heads * 2, head_dim});
    a.out = Tensor::dense(rows_.data(), DType::bf16, {tokens, heads * 2, head_dim});
    a.kv_cache = ConstTensor::dense(rows_.data(), DType::bf16, {pages, heads, 128, 256});
    a.selection = ConstTensor::dense(selection_.data(), DType::i32, {tokens, lists, topk});
    a.batch.seq_lens = ConstTensor::dense(seq_lens_.data(), DType::i32, {requests});
    a.batch.block_table = ConstTensor::dense(table_.data(), DType::i32, {requests, columns});
    a.batch.cu_seqlens_q = ConstTensor::dense(cu_seqlens_q_.data(), DType::i32, {4});
    a.batch.context_lens = ConstTensor::dense(context_lens_.data(), DType::i32, {3});
    a.batch.num_decodes = 2;
    a.batch.num_prefills = 3;
    a.batch.decode_query_len = 3;
    a.batch.num_actual_tokens = tokens;
    a.kv_shard = {static_cast<int>(world - 1), static_cast<int>(world)};
  }

  const AttendArgs& args() const { return args_; }

  /// The rows' pages by block, as the contract says it: none of a hole, of an id that the row does
  /// not see, of another shard, or without a page.
  std::map<std::int64_t, UnionBlock> expected(const TileRows& tile, std::int64_t head) const {
    std::map<std::int64_t, UnionBlock> blocks;
    for (std::int64_t i = 0; i < tile.count; ++i) {
      for (std::int64_t slot = 0; slot < topk; ++slot) {
        const std::int64_t list = lists_ == 1 ? 0 : head;
        const std::int64_t id = selection_[((tile.first + i) * lists_ + list) * topk + slot];
        const std::int64_t seen = tile.visible(i, true) - id * page_size;
        const std::int64_t world = args_.kv_shard.world;
        if (id < 0 || seen <= 0 || id % world != args_.kv_shard.rank) continue;
        if (id / world >= columns) continue;
        const std::int64_t page = table_[tile.request * columns + id / world];
        if (page < 0 || page >= pages) continue;
        UnionBlock& b = blocks[id];
        b.block = id;
        b.page = page;
        b.keys = std::max(b.keys, std::min<std::int64_t>(seen, page_size));
        b.tokens |= std::uint64_t{1} << i;
      }
    }
    return blocks;
  }

  static constexpr std::int64_t tokens = 6 + 200 + 5, requests = 5, heads = 3, topk = 9;
  static constexpr std::int64_t columns = 31, pages = 100;

 private:
  std::int64_t lists_;
  std::vector<std::uint16_t> rows_ = std::vector<std::uint16_t>(128);  // nothing of it is read
  std::vector<std::int32_t> selection_ = std::vector<std::int32_t>(tokens * heads * topk);
  std::vector<std::int32_t> table_ = std::vector<std::int32_t>(requests * columns);
  std::vector<std::int32_t> seq_lens_ = {2, 3000, 129, 500, 4500};
  std::vector<std::int32_t> cu_seqlens_q_ = {0, 129, 129, 200};
  std::vector<std::int32_t> context_lens_ = {0, 500, 4429};
  AttendArgs args_;
};

TEST(AttendPlan, TilesCoverEveryRowOnceAndNeverMixRequests) {
  const Problem problem(1, 1);
  for (std::int64_t tile_tokens : {std::int64_t{1}, std::int64_t{8}, max_tile_tokens}) {
    const BatchRows rows(problem.args().batch, tile_tokens);
    std::vector<int> covered(Problem::tokens);
    const auto cover = [&](const TileRows& tile) {
      for (std::int64_t i = 0; i < tile.count; ++i) ++covered[tile.first + i];
    };
    for (const TileRows& tile : rows.decode) {
      EXPECT_EQ(tile.count, 3);
      EXPECT_EQ(tile.first, tile.request * 3);
      cover(tile);
    }
    for (const TileRows& tile : rows.prefill) {
      EXPECT_LE(tile.count, tile_tokens);
      const bool first = tile.request == 2;  // of 129 rows at position 0; the other at 4,429
      EXPECT_EQ(tile.position - (first ? 0 : 4429), tile.first - (first ? 6 : 6 + 129));
      EXPECT_LE(tile.first + tile.count, first ? 6 + 129 : 6 + 200);
      cover(tile);
    }
    for (const TileRows& run : rows.uncovered) cover(run);
    EXPECT_EQ(covered, std::vector<int>(Problem::tokens, 1)) << tile_tokens;
    ASSERT_EQ(rows.uncovered.size(), 1u);
    EXPECT_EQ(rows.uncovered[0].count, 5);
  }
}

TEST(AttendPlan, UnionListsHoldEveryChosenPageOnceInAscendingOrder) {
  for (std::int64_t lists : {std::int64_t{1}, Problem::heads}) {
    for (std::int64_t world : {1, 2, 3}) {
      const Problem problem(lists, world);
      const AttendCall call(problem.args());
      const BatchRows rows(problem.args().batch, max_tile_tokens);
      std::vector<TileRows> tiles = rows.decode;
      tiles.insert(tiles.end(), rows.prefill.begin(), rows.prefill.end());
      std::int64_t blocks = 0, shared = 0;
      for (const TileRows& tile : tiles) {
        for (std::int64_t head = 0; head < Problem::heads; ++head) {
          const auto expected = problem.expected(tile, head);
          const std::vector<UnionBlock> got = union_list(call, tile, head);
          ASSERT_EQ(got.size(), expected.size());
          auto want = expected.begin();
          for (const UnionBlock& block : got) {
            EXPECT_EQ(block.block, want->first);
            EXPECT_EQ(block.page, want->second.page);
            EXPECT_EQ(block.keys, want->second.keys);
            EXPECT_EQ(block.tokens, want->second.tokens);
            shared += (block.tokens & (block.tokens - 1)) != 0;
            ++want;
          }
          blocks += static_cast<std::int64_t>(got.size());
        }
      }
      EXPECT_GT(blocks, 30);
      EXPECT_GT(shared, 10) << "pages that several tokens of a tile chose";
    }
  }
}

}  // namespace
}  // namespace msa::cpu
