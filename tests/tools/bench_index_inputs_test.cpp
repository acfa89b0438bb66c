// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cli/io/generate.h"
#include "index_inputs.h"

namespace msa::bench {
namespace {

constexpr Products bf16{DType::bf16, DType::bf16};
constexpr IndexShape short_decode{bf16, 4, 2, 1, 0, 4096 + 1};

std::vector<IndexShape> all_cells() {
  std::vector<IndexShape> cells = index_grid(DType::bf16);
  const std::vector<IndexShape> fp8 = index_grid(DType::e4m3);
  cells.insert(cells.end(), fp8.begin(), fp8.end());
  return cells;
}

TEST(BenchIndexInputs, CellsHaveDifferentNames) {
  std::set<std::string> names;
  for (const IndexShape& s : all_cells()) EXPECT_TRUE(names.insert(text_of(s)).second);
  EXPECT_TRUE(names.contains("bf16 4 heads m 1 B 64 @ 131072"));
  EXPECT_TRUE(names.contains("e4m3 q bf16 1 head m 1 B 1 @ 131072"));
  EXPECT_TRUE(names.contains("e4m3 exact 4 heads 8192 @ 122880"));
  EXPECT_TRUE(names.contains("e4m3 4 heads 64 x 128 @ 32640"));
  EXPECT_TRUE(names.contains("bf16 4 heads m 1 B 32 @ 1048576 skewed"));
  EXPECT_TRUE(names.contains("bf16 4 heads 8192 @ 24576 long bound"));
}

TEST(BenchIndexInputs, EveryCellHasPagesOfItsOwnForSeveralCalls) {
  for (const IndexShape& s : all_cells()) {
    EXPECT_LE(index_calls(s) * index_pages(s), index_pool_pages(s)) << text_of(s);
    EXPECT_GE(index_calls(s), 4) << text_of(s);
    EXPECT_GE(index_calls(s) * index_work(s).bytes, 256e6) << text_of(s);
  }
}

TEST(BenchIndexInputs, EveryRowSeesMoreBlocksThanItChooses) {
  for (const IndexShape& s : all_cells()) {
    const std::vector<std::int32_t> lengths = index_lengths(s);
    ASSERT_EQ(lengths.size(), static_cast<std::size_t>(s.batch));
    const std::int64_t shortest = *std::min_element(lengths.begin(), lengths.end());
    EXPECT_GT(shortest - s.queries() + 1, cli::generated_topk * page_size) << text_of(s);
    EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()), 1 << 20) << text_of(s);
  }
}

TEST(BenchIndexInputs, TheTablesOfAGraphNameNoPageTwice) {
  std::set<std::int32_t> pages;
  const auto tables = index_tables(short_decode);
  ASSERT_EQ(tables.size(), static_cast<std::size_t>(index_calls(short_decode)));
  for (const std::vector<std::int32_t>& table : tables) {
    ASSERT_EQ(table.size(), 2U * 33);
    pages.insert(table.begin(), table.end());
  }
  EXPECT_EQ(pages.size(), tables.size() * 2 * 33);
  EXPECT_GE(*pages.begin(), 0);
  EXPECT_LT(*pages.rbegin(), index_pool_pages(short_decode));
}

TEST(BenchIndexInputs, AWideTableNamesTheSamePagesInItsFirstColumns) {
  IndexShape shape = short_decode;
  const std::vector<std::int32_t> usual = index_tables(shape)[1];
  shape.variant = Variant::wide_table;
  const std::vector<std::int32_t> wide = index_tables(shape)[1];
  ASSERT_EQ(wide.size(), 2U * 65536);
  for (std::ptrdiff_t request = 0; request < 2; ++request) {
    const auto row = wide.begin() + request * 65536;
    EXPECT_TRUE(std::equal(row, row + 33, usual.begin() + request * 33));
    EXPECT_EQ(std::count(row + 33, row + 65536, -1), 65536 - 33);
  }
}

TEST(BenchIndexInputs, OneRequestOfASkewedBatchIsLong) {
  IndexShape shape{bf16, 4, 32, 1, 0, 1 << 20};
  shape.lengths = Lengths::skewed;
  const std::vector<std::int32_t> lengths = index_lengths(shape);
  EXPECT_EQ(std::count(lengths.begin(), lengths.end(), 4096), 31);
  EXPECT_EQ(lengths[16], 1 << 20);
  EXPECT_EQ(index_pages(shape), 8192 + 31 * 32);
  const std::vector<std::int32_t> table = index_tables(shape).front();
  ASSERT_EQ(table.size(), 32U * 8192);
  EXPECT_EQ(std::count(table.begin(), table.end(), -1), 31 * (8192 - 32));
  const Work work = index_work(shape);
  EXPECT_DOUBLE_EQ(index_rule_us(shape, work, 4.0), 5 + 1.15 * work.bytes / 4e6);
}

TEST(BenchIndexInputs, WorkCountsAKeyOfARequestOnceAndARowsVisibleKeys) {
  const IndexShape decode{{DType::e4m3, DType::e4m3}, 4, 2, 4, 0, 4096};
  const Work work = index_work(decode);
  EXPECT_EQ(work.bytes, 2 * 4096 * 128.0);
  EXPECT_EQ(work.flops, 2.0 * 128 * 4 * 2 * (4093 + 4094 + 4095 + 4096));
  EXPECT_DOUBLE_EQ(index_rule_us(decode, work, 4.5), 4.5 + 1.02 * work.bytes / 4.5e6);
  const IndexShape prefill{bf16, 1, 3, 0, 2, 4096};
  EXPECT_EQ(index_work(prefill).bytes, 3 * 4098 * 256.0);
  EXPECT_EQ(index_work(prefill).flops, 2.0 * 128 * 3 * (4097 + 4098));
}

}  // namespace
}  // namespace msa::bench
