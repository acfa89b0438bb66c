// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cli/io/generate.h"
#include "prefill_inputs.h"

namespace msa::bench {
namespace {

const std::string real_selection = MSA_REAL_SELECTION;

Shape real_shape(std::int64_t hq, std::int64_t hkv, std::int64_t m) {
  return {hq, hkv, m, 64, DType::bf16, KVLayout::LBHNC, false, Source::real};
}

TEST(BenchInputs, TheRealRowsSelectTheirOwnBlockAndNothingBehindIt) {
  const RealSelection real(real_selection);
  for (std::int64_t m : {1, 4}) {
    for (std::int64_t hkv : {1, 4}) {
      const Rows rows = decode_inputs(real_shape(16 * hkv, hkv, m), &real);
      for (std::int64_t row = 0; row < 64 * m; ++row) {
        const std::int64_t position = rows.lengths[static_cast<std::size_t>(row / m)] - m + row % m;
        ASSERT_LT(position, rows.columns * page_size);
        for (std::int64_t h = 0; h < hkv; ++h) {
          const auto ids = rows.ids.begin() + (row * hkv + h) * 16;
          EXPECT_TRUE(std::is_sorted(ids, ids + 16));
          EXPECT_EQ(ids[15], position / page_size) << "row " << row << ", head " << h;
        }
      }
    }
  }
}

TEST(BenchInputs, AShardOfOneHeadMeetsAllHeadsOfTheRealSelection) {
  const RealSelection real(real_selection);
  const Rows rows = decode_inputs(real_shape(8, 1, 1), &real);
  for (std::int64_t request = 0; request < 64; ++request) {
    for (std::int64_t slot = 0; slot < 16; ++slot) {
      EXPECT_EQ(rows.ids[static_cast<std::size_t>(request * 16 + slot)],
                real.id(request * 128, request % 4, slot));
    }
  }
}

TEST(BenchInputs, WorkCountsAPageOfARequestOnce) {
  Shape shape{64, 4, 2, 1, DType::bf16};
  Rows rows{std::vector<std::int32_t>(2 * 4 * 16, -1), {300}, 128};
  rows.ids[0] = 1;  // row 0, head 0
  rows.ids[1] = 2;
  rows.ids[4 * 16] = 2;  // row 1, head 0
  const Work work = work_of(shape, rows);
  EXPECT_EQ(work.bytes, 2 * 65536.0 + 2 * 2 * 64 * 128 * 2);
  EXPECT_EQ(work.flops, 65536.0 * 16 * 2 * 2);  // both rows on both pages
  EXPECT_DOUBLE_EQ(rule_us(shape, work), 3.8 + 1.03 * work.bytes / 4.55e6);
}

TEST(BenchInputs, AWideTableNamesTheSamePagesInItsFirstColumns) {
  Shape shape{64, 4, 1, 2, DType::bf16};
  const Rows rows = decode_inputs(shape, nullptr);
  const std::vector<std::int32_t> usual = decode_table(shape, rows, 1000, 5);
  shape.variant = Variant::wide_table;
  const std::vector<std::int32_t> wide = decode_table(shape, rows, 1000, 5);
  ASSERT_EQ(usual.size(), 256U);
  ASSERT_EQ(wide.size(), 2U * 8192);
  for (std::size_t request = 0; request < 2; ++request) {
    const auto row = wide.begin() + static_cast<std::ptrdiff_t>(request * 8192);
    EXPECT_TRUE(
        std::equal(row, row + 128, usual.begin() + static_cast<std::ptrdiff_t>(request * 128)));
    EXPECT_EQ(std::count(row + 128, row + 8192, -1), 8192 - 128);
  }
}

TEST(BenchInputs, NoCellNeedsMorePagesThanItsPoolHas) {
  for (const DType kv : {DType::bf16, DType::e4m3, DType::f16, DType::e5m2}) {
    std::set<std::string> seen;
    for (const Shape& s : decode_grid(kv)) {
      const std::int64_t columns = s.source == Source::real ? RealSelection::blocks : 128;
      EXPECT_LE(s.batch * columns, pool_pages(s)) << shard_of(s) << " batch " << s.batch;
      EXPECT_TRUE(seen.insert(shard_of(s) + " " + std::to_string(s.m) + " " +
                              std::to_string(s.batch) + name(s.layout) + (s.lse ? "L" : "") +
                              name(s.source) + name(s.variant))
                      .second);
    }
  }
}

TEST(BenchInputs, PrefillSelectionsAreThoseOfTheGrid) {
  struct Known {
    std::int64_t queries, context;
    Locality locality;
    std::uint64_t checksum;
    double distinct_of_4, distinct_of_8;  // of the first head; rows have the mean
  };
  for (const Known& k : {Known{8192, 24576, Locality::high, 0x7910d87aee2cf8db, 17.3, 19.1},
                         Known{8192, 122880, Locality::middle, 0x15162397919fb177, 20.5, 26.4},
                         Known{2048, 122880, Locality::none, 0x2b30b8e0bbf89493, 59.6, 114.6}}) {
    const PrefillShape shape{64, 4, k.queries, k.context, k.locality, DType::bf16};
    const PrefillRows rows = prefill_inputs(shape, nullptr);
    EXPECT_EQ(cli::ids_checksum(rows.ids), k.checksum) << text_of(shape);
    EXPECT_NEAR(mean_distinct(shape, rows, 4), k.distinct_of_4, 0.3) << text_of(shape);
    EXPECT_NEAR(mean_distinct(shape, rows, 8), k.distinct_of_8, 0.3) << text_of(shape);
  }
}

TEST(BenchInputs, UsefulWorkEndsWithTheKeysThatATokenSees) {
  const PrefillShape shape{64, 4, 2, 128, Locality::high, DType::bf16};
  PrefillRows rows = prefill_inputs(shape, nullptr);
  rows.ids.assign(rows.ids.size(), -1);
  rows.ids[0] = 0;            // 128 keys of token 0
  rows.ids[4 * 16] = 1;       // of token 1, at 129: two keys
  rows.ids[4 * 16 + 1] = 20;  // behind it
  EXPECT_EQ(useful_flops(shape, rows), 4.0 * 128 * 16 * (128 + 2));
}

TEST(BenchInputs, PrefillCellsHaveDifferentNames) {
  std::set<std::string> names;
  std::size_t cells = 0;
  for (const DType kv : {DType::bf16, DType::e4m3, DType::f16, DType::e5m2}) {
    for (const PrefillShape& shape : prefill_grid(kv)) {
      names.insert(text_of(shape));
      ++cells;
    }
  }
  EXPECT_EQ(names.size(), cells);
}

}  // namespace
}  // namespace msa::bench
