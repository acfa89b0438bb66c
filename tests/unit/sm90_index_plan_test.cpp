// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/block_order.h"
#include "cuda/sm90/index/config.h"

/// \file
/// Schedule arithmetic of the SM90 indexer, which needs no device.

namespace msa::cuda::sm90::index {
namespace {

TEST(IndexPlan, ColumnsArePaddedToWhatKernelsAreCompiledFor) {
  for (int columns = 1; columns <= max_columns; ++columns) {
    const int padded = padded_columns(columns);
    ASSERT_GE(padded, columns);
    ASSERT_TRUE(padded == 8 || padded / 2 < columns) << columns;
    ASSERT_EQ(padded & (padded - 1), 0);
  }
  static_assert(max_columns == max_index_heads * max_decode_query_len, "every decode request fits");
}

TEST(IndexPlan, ATilesTokensDivideAPageAndFitTheColumns) {
  for (int heads = 1; heads <= max_index_heads; ++heads) {
    const int tokens = 1 << tile_tokens_log2(heads);
    ASSERT_EQ(page_size % tokens, 0);
    ASSERT_LE(tokens * heads, max_columns);
    ASSERT_TRUE(tokens == page_size || 2 * tokens * heads > max_columns) << heads;
  }
  EXPECT_EQ(1 << tile_tokens_log2(4), 64);
  EXPECT_EQ(1 << tile_tokens_log2(16), 16);
}

/// Pages that each tile of a run reads, one by one.
std::vector<std::int64_t> pages_of_tiles(std::int64_t context, int log2, std::int64_t skip,
                                         std::int64_t tiles) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= tiles; ++i) {
    const std::int64_t keys = context + (i << log2);
    const std::int64_t pages = keys > 0 ? pages_of(keys) : 0;
    all.push_back(pages > skip ? pages : 0);
  }
  return all;
}

TEST(IndexPlan, UnitsAreThePagesOfTheTiles) {
  for (const int log2 : {4, 5, 6, 7}) {
    for (const std::int64_t context : {-300, -128, -1, 0, 1, 63, 64, 65, 127, 128, 24576, 130995}) {
      for (const std::int64_t skip : {0, 1, 16, 64, 2000}) {
        constexpr std::int64_t tiles = 70;
        const TileRun run(context, log2, skip);
        std::int64_t units = 0, tile = 0;
        for (const std::int64_t pages : pages_of_tiles(context, log2, skip, tiles)) {
          ASSERT_EQ(run.units(tile), units) << context << ", tile " << tile << ", skip " << skip;
          for (std::int64_t page = 0; page < pages; ++page) {
            ASSERT_EQ(run.tile_of(units + page, tiles), tile) << context << ", page " << page;
          }
          units += pages;
          ++tile;
        }
        ASSERT_EQ(run.units(tiles), units);
      }
    }
  }
}

TEST(IndexPlan, SlicesCoverAllUnitsOnceAndDifferByOneAtMost) {
  for (const std::int64_t units :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{131}, std::int64_t{264}, std::int64_t{265},
        (std::int64_t{1} << 31) - 1, std::int64_t{1} << 31, std::int64_t{1} << 52}) {
    for (const int ctas : {1, 132, 264}) {
      const Slices slices(units, ctas, Divisor(static_cast<std::uint32_t>(ctas)));
      EXPECT_EQ(slices.begin(0), 0);
      EXPECT_EQ(slices.begin(ctas), units);
      for (int cta = 0; cta < ctas; ++cta) {
        const std::int64_t size = slices.begin(cta + 1) - slices.begin(cta);
        ASSERT_GE(size, units / ctas);
        ASSERT_LE(size, units / ctas + 1);
      }
    }
  }
}

TEST(IndexPlan, ForcedBlocksComeInTheOrderOfTheirKeys) {
  for (const std::int64_t valid : {1, 2, 5, 17, 64}) {
    for (const std::int64_t init : {0, 1, 3, 80}) {
      for (const std::int64_t local : {0, 1, 2, 80}) {
        const RowOrder order(valid, {init, local, false});
        ASSERT_LE(order.first_free(), order.end_free());
        std::int64_t forced = 0;
        for (std::int64_t block = 0; block < valid; ++block) {
          const bool free = block >= order.first_free() && block < order.end_free();
          forced += free ? 0 : 1;
          ASSERT_EQ(order.key(block, 0) >> 63, free ? 0u : 1u);
        }
        ASSERT_EQ(order.forced_count(), forced);
        for (std::int64_t rank = 0; rank < forced; ++rank) {
          ASSERT_GT(order.forced_key(rank), order.forced_key(rank + 1));
        }
        ASSERT_EQ(order.forced_key(forced), 0u);
      }
    }
  }
}

TEST(IndexPlan, EveryKernelFitsItsSharedMemory) {
  const auto fits = []<class Keys, int n>(Keys, std::integral_constant<int, n>) {
    constexpr int slots = slots_beside<Keys, n>();
    static_assert(slots >= 2 && dynamic_bytes<Keys, n>(slots) <= Team<n>::shared_bytes);
  };
  const auto all = [&]<class Keys>(Keys keys) {
    fits(keys, std::integral_constant<int, 8>());
    fits(keys, std::integral_constant<int, 16>());
    fits(keys, std::integral_constant<int, 32>());
    fits(keys, std::integral_constant<int, 64>());
    fits(keys, std::integral_constant<int, 128>());
    fits(keys, std::integral_constant<int, 256>());
  };
  all(Bf16Keys());
  all(SplitKeys());
  all(E4m3Keys());
  all(WidenedKeys());
}

}  // namespace
}  // namespace msa::cuda::sm90::index
