// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "msa/error.h"
#include "reference/reference.h"
#include "step.h"
#include "verify/compare.h"

namespace msa::serving_test {
namespace {

StepSpec mixed() {
  StepSpec spec;
  spec.query_lens = {1, 1, 1, 70, 0, 7};
  spec.seq_lens = {1, 129, 1500, 70, 0, 1031};
  return spec;
}

void run_indexer(const Step& step, const SelectRule& rule = {}) {
  step.indexer(rule).forward(step.layer(), step.index_query(), step.index_cache.view(),
                             step.index_table(), step.context());
}

void run_impl(const Step& step) {
  step.impl().forward(step.layer(), step.query(), step.cache(), step.output(), step.context());
}

/// What the indexer must have written: f64 scores on the literal batch, chosen by the reference.
std::vector<std::int32_t> expected_ids(const Step& step, const SelectRule& rule = {}) {
  IndexScoresArgs args;
  args.index_q = step.index_q.view();
  args.index_cache = step.index_cache.view();
  args.batch = step.literal_batch(step.index_table());
  const std::int64_t blocks = (args.batch.max_seq_len + page_size - 1) / page_size;
  args.scores = Tensor(nullptr, DType::f32, {step.spec.index_heads, blocks, step.spec.tokens()},
                       {blocks * step.spec.tokens(), step.spec.tokens(), 1});
  return reference::select_blocks(reference::index_scores(args), step.spec.index_heads, blocks,
                                  step.spec.tokens(), reference::valid_blocks(args.batch),
                                  step.spec.topk, rule);
}

std::vector<std::int32_t> written_ids(const Step& step, std::int64_t lists) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < step.spec.tokens(); ++t) {
    for (std::int64_t h = 0; h < lists; ++h) {
      for (std::int64_t k = 0; k < step.spec.topk; ++k) {
        ids.push_back(verify::i32(step.topk, t, h, k));
      }
    }
  }
  return ids;
}

TEST(Indexer, FillsTheSharedBufferWithTheReferencesIds) {
  StepSpec spec = mixed();
  spec.padding = 2;
  const Step step(spec);
  const auto before = verify::snapshot(step.topk);
  run_indexer(step);
  EXPECT_EQ(written_ids(step, 2), expected_ids(step));
  EXPECT_TRUE(verify::untouched_outside(step.topk, before, spec.tokens()));
}

TEST(Indexer, ForcedBlocksFollowTheConfiguredRule) {
  const Step step(mixed());
  const SelectRule rule{.init_blocks = 1, .local_blocks = 2};
  run_indexer(step, rule);
  EXPECT_EQ(written_ids(step, 2), expected_ids(step, rule));
}

TEST(Indexer, OneListForAllHeads) {
  const Step step(mixed());
  const SelectRule rule{.reduce_heads = true};
  LayerContext layer = step.layer();
  layer.topk_indices = layer.topk_indices.narrow(1, 0, 1);
  step.indexer(rule).forward(layer, step.index_query(), step.index_cache.view(), step.index_table(),
                             step.context());
  EXPECT_EQ(written_ids(step, 1), expected_ids(step, rule));
}

TEST(Indexer, QueriesMayComeSplitIntoHeads) {
  const Step flat(mixed());
  const Step split(mixed());
  run_indexer(flat);
  split.indexer().forward(split.layer(), split.index_q.view(), split.index_cache.view(),
                          split.index_table(), split.context());
  EXPECT_EQ(verify::snapshot(flat.topk), verify::snapshot(split.topk));
}

TEST(Indexer, ProfilingRunLeavesTheBufferUntouched) {
  const Step step(mixed());
  const auto before = verify::snapshot(step.topk);
  step.indexer().forward(step.layer(), ConstTensor(), ConstTensor(), ConstTensor(),
                         ForwardContext{});
  EXPECT_EQ(verify::snapshot(step.topk), before);
  EXPECT_EQ(step.indexer().workspace_size(step.layer(), ConstTensor(), ConstTensor(), ConstTensor(),
                                          ForwardContext{}),
            0u);
}

TEST(Indexer, WorkspaceOfTheStatedSizeIsEnough) {
  const Step step(mixed());
  const std::size_t bytes =
      step.indexer().workspace_size(step.layer(), step.index_query(), step.index_cache.view(),
                                    step.index_table(), step.context());
  step.indexer().forward(step.layer(), step.index_query(), step.index_cache.view(),
                         step.index_table(), step.context(bytes));
  EXPECT_EQ(written_ids(step, 2), expected_ids(step));
}

TEST(Indexer, BufferHasRowsForARoundNumberOfTokens) {
  EXPECT_EQ(Indexer::buffer_rows(0), 0);
  EXPECT_EQ(Indexer::buffer_rows(1), 4);
  EXPECT_EQ(Indexer::buffer_rows(4), 4);
  EXPECT_EQ(Indexer::buffer_rows(8193), 8196);
}

TEST(Indexer, BufferOfAnotherShapeIsRefused) {
  const Step step(mixed());
  LayerContext layer = step.layer();
  layer.topk_indices = layer.topk_indices.narrow(2, 0, 3);
  try {
    step.indexer().forward(layer, step.index_query(), step.index_cache.view(), step.index_table(),
                           step.context());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'topk_indices'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("Hs = 2, topk = 4]"), std::string::npos);
  }
}

TEST(IndexerThenAttend, ChainMatchesTheReference) {
  for (DType kv_type : {DType::bf16, DType::e4m3}) {
    StepSpec spec = mixed();
    spec.kv_type = kv_type;
    spec.padding = 1;
    const Step step(spec);
    run_indexer(step);
    run_impl(step);
    // `expected` reads the ids that the indexer wrote; those are checked above.
    EXPECT_EQ(written_ids(step, 2), expected_ids(step));
    EXPECT_LE(verify::distance(step.result(), step.expected()).max_abs, 1.7e-2);
    EXPECT_LE(verify::distance(step.result(), step.expected()).relative_l2, 4e-3);
  }
}

TEST(IndexerThenAttend, ShortContextsAttendToEverything_Report59) {
  // Up to topk blocks the choice is all of them: the result is that of dense attention.
  StepSpec spec;
  spec.query_lens = {1, 1, 130, 7};
  spec.seq_lens = {512, 300, 130, 263};
  const Step step(spec);
  run_indexer(step);
  run_impl(step);
  for (std::int64_t t = 0; t < spec.tokens(); ++t) {
    for (std::int64_t h = 0; h < spec.kv_heads; ++h) {
      for (std::int64_t k = 0; k < spec.topk; ++k) {
        verify::i32(step.topk, t, h, k) = static_cast<std::int32_t>(k);
      }
    }
  }
  EXPECT_LE(verify::distance(step.result(), step.expected()).relative_l2, 4e-3);
}

TEST(IndexerThenAttend, LostIndexKeysStayInBoundsAndDeterministic_Report84) {
  // The index pool of part of the context was not restored: its keys are zero, all scores tie.
  std::vector<std::byte> bits[2];
  for (auto& run : bits) {
    const Step step(mixed());
    std::uint16_t* keys = step.index_cache.data<std::uint16_t>();
    std::fill_n(keys, step.pages * page_size * head_dim, std::uint16_t{0});
    run_indexer(step);
    EXPECT_EQ(written_ids(step, 2), expected_ids(step));
    run_impl(step);
    EXPECT_LE(verify::distance(step.result(), step.expected()).relative_l2, 4e-3);
    run = step.result_bits();
  }
  EXPECT_EQ(bits[0], bits[1]);
}

TEST(IndexerThenAttend, BuildersMetadataPassesTheChecksOfMemory) {
  StepSpec spec = mixed();
  spec.padding = 3;
  const Step step(spec);
  ASSERT_EQ(setenv("MSA_CHECK", "1", 1), 0);
  EXPECT_NO_THROW(run_indexer(step));
  EXPECT_NO_THROW(run_impl(step));
  // Request 2 has one row, which chose 4 of 12 blocks for each of two heads.
  std::set<std::int32_t> chosen;
  for (std::int64_t h = 0; h < spec.kv_heads; ++h) {
    for (std::int64_t i = 0; i < spec.topk; ++i) chosen.insert(verify::i32(step.topk, 2, h, i));
  }
  for (std::int32_t block = 0; block < 12; ++block) {
    if (!chosen.contains(block)) verify::i32(step.table_array, 2, block) = -1;
  }
  EXPECT_NO_THROW(run_impl(step));
  verify::i32(step.table_array, 2, *chosen.begin()) = -1;
  EXPECT_THROW(run_impl(step), Error);
  unsetenv("MSA_CHECK");
}

TEST(IndexerThenAttend, ChainGivesTheSameBitsForAnyPlaceOfThePages) {
  StepSpec spec = mixed();
  const Step a(spec);
  spec.page_seed = 9;
  spec.layout = KVLayout::LBNHC;
  spec.poison = Poison::huge;
  const Step b(spec);
  for (const Step* step : {&a, &b}) {
    run_indexer(*step);
    run_impl(*step);
  }
  EXPECT_EQ(a.result_bits(), b.result_bits());
}

}  // namespace
}  // namespace msa::serving_test
