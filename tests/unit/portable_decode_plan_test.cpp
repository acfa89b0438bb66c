// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>

#include "cuda/portable/decode/config.h"

/// \file
/// Schedule arithmetic of the portable decode kernel, which needs no device.

namespace msa::cuda::portable::decode {
namespace {

TEST(PortableDecodePlan, RowsAndIdsFitTheTilesAndTheLists) {
  for (int group = 1; group <= max_group; ++group) {
    for (int m = 1; m <= 16; ++m) {
      for (int topk = 1; topk <= max_topk; ++topk) {
        const int rows = item_rows(m, group, topk);
        ASSERT_GE(rows, 1);
        ASSERT_LE(rows, m);
        const int tiles = tiles_of(rows * group);
        ASSERT_LE(rows * group, 16 * tiles);
        ASSERT_LE(rows * topk, max_ids(tiles));
      }
    }
  }
  EXPECT_EQ(item_rows(1, 16, 16), 1);
  EXPECT_EQ(item_rows(4, 16, 16), 2);
  EXPECT_EQ(item_rows(4, 8, 16), 4);
  EXPECT_EQ(item_rows(4, 8, 64), 2);
  EXPECT_EQ(item_rows(16, 1, 16), 16);
  EXPECT_EQ(item_rows(16, 1, 64), 4);
  EXPECT_EQ(tiles_of(16), 1);
  EXPECT_EQ(tiles_of(17), 2);
}

/// What `splits` CTAs and the kernel behind them make of `units` units, as an expression.
std::string tree(int units, int splits) {
  const auto fold = [](const std::string& a, const std::string& b) {
    return a.empty() ? b : "(" + a + "+" + b + ")";
  };
  const auto name = [](int u) { return std::to_string(u); };
  if (splits == 1) {
    std::string total, group;
    for (int u = 0; u < units; ++u) {
      EXPECT_TRUE(joins_group(u, 0));
      group = fold(group, name(u));
      if ((u + 1) % group_units != 0 && u + 1 != units) continue;
      total = fold(total, group);
      group.clear();
    }
    return total;
  }
  const int share = share_of(units, splits);
  std::map<int, std::string> places;
  for (int split = 0; split < splits; ++split) {
    const int first = std::min(split * share, units), end = std::min(first + share, units);
    std::string group;
    for (int u = first; u < end; ++u) {
      if (!joins_group(u, first)) {
        EXPECT_TRUE(places.emplace(u, name(u)).second);
        continue;
      }
      group = fold(group, name(u));
      if ((u + 1) % group_units != 0 && u + 1 != end) continue;
      EXPECT_TRUE(places.emplace(u / group_units * group_units, group).second);
      group.clear();
    }
  }
  std::string total, group;
  for (int u = 0; u < units; ++u) {
    EXPECT_EQ(places.contains(u), starts_partial(u, share));
    if (!places.contains(u)) continue;
    if (u % group_units == 0) {
      if (!group.empty()) total = fold(total, group);
      group = places[u];
    } else {
      group = fold(group, places[u]);
    }
  }
  return group.empty() ? total : fold(total, group);
}

TEST(PortableDecodePlan, NoSplitChangesTheTree) {
  for (const int units : {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 64, 128}) {
    const std::string whole = tree(units, 1);
    for (int splits = 2; splits <= 70; ++splits) {
      ASSERT_EQ(tree(units, splits), whole) << units << " units, " << splits << " CTAs";
    }
  }
  EXPECT_EQ(tree(6, 1), "((((0+1)+2)+3)+(4+5))");
}

TEST(PortableDecodePlan, SharesCoverTheUnits) {
  for (int units = 0; units <= 256; ++units) {
    for (int splits = 1; splits <= 64; ++splits) {
      const int share = share_of(units, splits);
      ASSERT_GE(share * splits, units);
    }
  }
  EXPECT_EQ(share_of(16, 16), 1);
  EXPECT_EQ(share_of(16, 8), 2);
  EXPECT_EQ(share_of(16, 5), 4);
  EXPECT_EQ(share_of(16, 2), 8);
}

TEST(PortableDecodePlan, TheDeviceIsFilledAndNotMore) {
  constexpr int resident = 264;
  EXPECT_EQ(splits_of(4, 16, resident), 16);
  EXPECT_EQ(splits_of(32, 16, resident), 8);
  EXPECT_EQ(splits_of(128, 16, resident), 2);
  EXPECT_EQ(splits_of(133, 16, resident), 1);
  EXPECT_EQ(splits_of(std::int64_t{1} << 40, 16, resident), 1);
  EXPECT_EQ(splits_of(0, 16, resident), 1);
}

template <int element_bytes, int tiles>
void check_shape() {
  using S = Shape<element_bytes, tiles>;
  EXPECT_LE(dynamic_bytes<S>(), most_shared_bytes);
  EXPECT_EQ(S::keys * S::page_steps, page_size);
  // Two CTAs a SM of 227 KB, each of which the system takes another KB for.
  EXPECT_LE(ctas_per_sm * (dynamic_bytes<S>() + 1024), std::size_t{228} * 1024);
}

TEST(PortableDecodePlan, EveryShapeFitsABlockOf99KB) {
  check_shape<2, 1>();
  check_shape<2, 2>();
  check_shape<1, 1>();
  check_shape<1, 2>();
}

}  // namespace
}  // namespace msa::cuda::portable::decode
