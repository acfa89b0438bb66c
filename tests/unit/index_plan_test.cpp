// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/index_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace msa::cpu {
namespace {

/// A batch whose arrays it owns.
struct Batch {
  std::vector<std::int32_t> seq_lens, cu_seqlens_q{0}, context_lens;
  BatchMetadata metadata;

  BatchMetadata& make(std::int64_t m, std::vector<std::int32_t> decodes,
                      std::vector<std::int32_t> queries, std::vector<std::int32_t> keys,
                      std::int64_t padding) {
    const auto n = static_cast<std::int64_t>(queries.size());
    seq_lens = decodes;
    for (std::size_t p = 0; p < queries.size(); ++p) {
      seq_lens.push_back(keys[p]);
      cu_seqlens_q.push_back(cu_seqlens_q.back() + queries[p]);
      context_lens.push_back(keys[p] - queries[p]);
    }
    BatchMetadata& b = metadata;
    b.num_decodes = static_cast<std::int64_t>(decodes.size());
    b.num_prefills = n;
    b.decode_query_len = m;
    b.num_actual_tokens = b.num_decode_tokens() + cu_seqlens_q.back() + padding;
    for (std::int32_t q : queries) b.max_query_len = std::max<std::int64_t>(b.max_query_len, q);
    for (std::int32_t k : seq_lens) b.max_seq_len = std::max<std::int64_t>(b.max_seq_len, k);
    b.seq_lens = ConstTensor::dense(seq_lens.data(), DType::i32, {b.num_requests()});
    b.cu_seqlens_q = ConstTensor::dense(cu_seqlens_q.data(), DType::i32, {n + 1});
    b.context_lens = ConstTensor::dense(context_lens.data(), DType::i32, {n});
    return b;
  }
};

/// How often each row is in a tile.
std::vector<int> coverage(const std::vector<IndexTile>& tiles, std::int64_t tokens) {
  std::vector<int> count(static_cast<std::size_t>(tokens));
  for (const IndexTile& tile : tiles) {
    EXPECT_GE(tile.tokens, 1);
    for (std::int64_t t = 0; t < tile.tokens; ++t) {
      EXPECT_LT(tile.first_token + t, tokens);
      if (tile.first_token + t < tokens) ++count[tile.first_token + t];
    }
  }
  return count;
}

TEST(IndexPlan, TilesCoverEveryRowOnce) {
  for (std::int64_t heads : {1, 3, 4, 16}) {
    for (std::int64_t m : {1, 4, 16}) {
      Batch batch;
      const BatchMetadata& b =
          batch.make(m, {100, 0, 5000}, {300, 0, 1, 77}, {300, 9, 900, 4000}, 5);
      const std::vector<IndexTile> tiles = index_tiles(b, heads);
      EXPECT_EQ(coverage(tiles, b.num_actual_tokens),
                std::vector<int>(static_cast<std::size_t>(b.num_actual_tokens), 1));
      for (const IndexTile& tile : tiles) {
        EXPECT_EQ(tile.decode, tile.first_token < b.num_decode_tokens());
        EXPECT_EQ(tile.decode ? tile.tokens : m, m);
      }
    }
  }
}

TEST(IndexPlan, RowsSeeWhatTheirPositionSays) {
  Batch batch;
  const BatchMetadata& b = batch.make(2, {1, 129}, {3}, {1000}, 1);
  std::vector<std::int64_t> visible(static_cast<std::size_t>(b.num_actual_tokens));
  for (const IndexTile& tile : index_tiles(b, 4)) {
    for (std::int64_t t = 0; t < tile.tokens; ++t) {
      visible[tile.first_token + t] =
          std::clamp<std::int64_t>(tile.first_visible + t, 0, tile.keys);
    }
  }
  EXPECT_EQ(visible, (std::vector<std::int64_t>{0, 1, 128, 129, 998, 999, 1000, 0}));
}

TEST(IndexPlan, ContradictoryMetadataStaysInBounds) {
  Batch batch;
  BatchMetadata& b = batch.make(1, {-5, 2000000000}, {10, 20, 30}, {10, 20, 30}, 0);
  batch.cu_seqlens_q = {0, 50, -7, 1000};
  batch.context_lens = {-100, 2000000000, 7};
  const std::vector<IndexTile> tiles = index_tiles(b, 4);
  EXPECT_EQ(coverage(tiles, b.num_actual_tokens),
            std::vector<int>(static_cast<std::size_t>(b.num_actual_tokens), 1));
  for (const IndexTile& tile : tiles) EXPECT_GE(tile.keys, 0);
}

/// Every block of every tile in one part, and parts of one tile in the workspace side by side.
void check_parts(std::vector<IndexTile> tiles, std::size_t bytes, int threads) {
  constexpr std::int64_t heads = 4, topk = 16;
  const std::vector<IndexPart> parts = split_tiles(tiles, heads, heads, topk, bytes, threads);
  std::vector<std::int64_t> next_block(tiles.size()), next_part(tiles.size());
  for (const IndexPart& part : parts) {
    const IndexTile& tile = tiles[part.tile];
    EXPECT_EQ(part.index, next_part[part.tile]++);
    EXPECT_EQ(part.first_block, next_block[part.tile]);
    next_block[part.tile] = part.last_block;
    if (tile.parts == 1) continue;
    const std::int64_t keys = tile.tokens * heads * topk;
    EXPECT_LE((tile.pool_offset + (part.index + 1) * keys) * 8, static_cast<std::int64_t>(bytes));
  }
  std::int64_t end = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    EXPECT_EQ(next_block[i], tiles[i].blocks());
    EXPECT_EQ(next_part[i], tiles[i].parts);
    if (tiles[i].parts == 1) continue;
    EXPECT_GE(tiles[i].pool_offset, end);
    end = tiles[i].pool_offset + tiles[i].parts * tiles[i].tokens * heads * topk;
  }
}

TEST(IndexPlan, PartsCoverEveryBlockWithinTheWorkspace) {
  Batch batch;
  const BatchMetadata& b = batch.make(1, {131072, 50, 9000, 0}, {200, 3}, {70000, 100}, 2);
  const std::vector<IndexTile> tiles = index_tiles(b, 4);
  for (std::size_t bytes : {std::size_t{0}, std::size_t{511}, std::size_t{5000},
                            std::size_t{100000}, std::size_t{1} << 30}) {
    for (int threads : {1, 2, 7, 64, 1000}) check_parts(tiles, bytes, threads);
  }
}

TEST(IndexPlan, OneLongRequestIsSplitOverThreads) {
  Batch batch;
  const BatchMetadata& b = batch.make(1, {131072}, {}, {}, 0);
  std::vector<IndexTile> tiles = index_tiles(b, 4);
  const std::size_t bytes = index_workspace_bytes(b, 4, 4, 16, default_workspace_cap);
  EXPECT_EQ(split_tiles(tiles, 4, 4, 16, bytes, 8).size(), 32u);
  EXPECT_EQ(split_tiles(tiles, 4, 4, 16, 0, 8).size(), 1u);
}

TEST(IndexPlan, WorkspaceHonoursItsCapAndShortContextsNeedNone) {
  Batch batch;
  BatchMetadata& b = batch.make(1, {100000}, {5000}, {100000}, 0);
  EXPECT_GT(index_workspace_bytes(b, 4, 4, 16, default_workspace_cap), 0u);
  EXPECT_EQ(index_workspace_bytes(b, 4, 4, 16, 1000), 1000u);
  EXPECT_EQ(index_workspace_bytes(b, 4, 4, 16, 0), 0u);
  b.max_seq_len = 2048;
  EXPECT_EQ(index_workspace_bytes(b, 4, 4, 16, default_workspace_cap), 0u);
}

}  // namespace
}  // namespace msa::cpu
