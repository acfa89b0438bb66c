// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "cuda/sm90/decode/config.h"

/// \file
/// Schedule arithmetic of the SM90 decode kernel, which needs no device.

namespace msa::cuda::sm90::decode {
namespace {

constexpr int all_columns[] = {8, 16, 32};

TEST(DecodePlan, RowsAndColumnsFitTheProducts) {
  for (int group = 1; group <= max_group; ++group) {
    for (int m = 1; m <= 16; ++m) {
      const int rows = item_rows(m, group);
      EXPECT_GE(rows, 1);
      EXPECT_LE(rows, m);
      EXPECT_LE(rows, max_rows);
      EXPECT_LE(rows * group, padded_columns(rows * group));
      EXPECT_LE(padded_columns(rows * group), max_columns);
    }
  }
  EXPECT_EQ(item_rows(1, 16), 1);
  EXPECT_EQ(item_rows(4, 16), 2);
  EXPECT_EQ(item_rows(4, 8), 4);
}

TEST(DecodePlan, DivisionByAProductIsExact) {
  for (int size = 1; size <= max_topk; ++size) {
    for (int i = 0; i < max_rows * max_topk; ++i) {
      ASSERT_EQ(row_of(i, row_factor(size)), i / size) << i << " / " << size;
    }
  }
}

TEST(DecodePlan, SegmentsCoverTheListOnce) {
  for (int n : all_columns) {
    for (int pages = 0; pages <= max_rows * max_topk; ++pages) {
      ASSERT_EQ(segment_begin(0, pages, n), 0);
      ASSERT_EQ(segment_begin(segments(n), pages, n), pages);
      for (int s = 0; s < segments(n); ++s) {
        const int length = segment_begin(s + 1, pages, n) - segment_begin(s, pages, n);
        ASSERT_GE(length, 0);
        ASSERT_LE(length, (pages + segments(n) - 1) / segments(n));
        ASSERT_EQ(any_page(s, s + 1, pages, n), length > 0);
      }
    }
    // The usual list: a page a segment, or as many for each.
    EXPECT_EQ(segment_begin(1, 16, n), 16 / segments(n));
  }
}

/// Whatever the cluster: groups' results in order are the segments in order, each CTA's segments
/// are its own, no two results share a place, and the first of a group alone is folded.
TEST(DecodePlan, PartialResultsOfAnyClusterAreTheSameTree) {
  for (int n : all_columns) {
    for (int ctas = 2; ctas <= segments(n); ++ctas) {
      if (!splits(ctas, n)) continue;
      const int share = segments(n) / ctas;
      std::set<std::pair<int, int>> places;
      int next = 0;
      for (int g = 0; g < groups; ++g) {
        for (int p = 0; p < partials_of_group(ctas, n); ++p) {
          const Partial partial = partial_of(g, p, ctas, n);
          EXPECT_EQ(partial.begin, next);
          EXPECT_TRUE(p == 0 || partial.end == partial.begin + 1);
          EXPECT_GE(partial.begin, partial.cta * share);
          EXPECT_LE(partial.end, (partial.cta + 1) * share);
          EXPECT_LT(partial.slot, has_two(partial.cta, ctas, n) ? 2 : 1);
          for (int s = partial.begin; s < partial.end; ++s) {
            EXPECT_EQ(ends_partial(s, ctas, n), s + 1 == partial.end) << s << " of " << ctas;
          }
          EXPECT_TRUE(places.insert({partial.cta, partial.slot}).second);
          next = partial.end;
        }
        EXPECT_EQ(next, (g + 1) * segments_per_group(n));
      }
    }
  }
}

TEST(DecodePlan, EveryColumnIsWrittenOnce) {
  for (int n : all_columns) {
    for (int ctas = 2; ctas <= segments(n); ++ctas) {
      if (!splits(ctas, n)) continue;
      const int each = columns_of_cta(ctas, n);
      std::vector<int> written(n, 0);
      for (int rank = 0; rank < ctas; ++rank) {
        for (int c = rank * each; c < (rank + 1) * each && c < n; ++c) ++written[c];
      }
      EXPECT_EQ(written, std::vector<int>(n, 1)) << ctas << " CTAs, " << n << " columns";
    }
  }
}

TEST(DecodePlan, ClustersAreAsLargeAsTheDeviceRunsAtOnce) {
  int clusters[segments(8) + 1] = {};
  clusters[2] = 128;
  clusters[4] = 60;
  clusters[8] = 32;
  clusters[16] = 16;
  EXPECT_EQ(cluster_size(4, clusters, 16), 16);
  EXPECT_EQ(cluster_size(16, clusters, 16), 16);
  EXPECT_EQ(cluster_size(17, clusters, 16), 8);
  EXPECT_EQ(cluster_size(60, clusters, 16), 4);
  EXPECT_EQ(cluster_size(64, clusters, 16), 2);
  EXPECT_EQ(cluster_size(129, clusters, 16), 1);
  EXPECT_EQ(cluster_size(4, clusters, 32), 4);
}

TEST(DecodePlan, RingsHoldAPageAndThePartialResults) {
  const auto check = [](auto columns) {
    constexpr int n = decltype(columns)::value;
    for (int capacity : {1, 16, 64, 512, max_rows * max_topk}) {
      const int slots = ring_slots<n>(capacity);
      EXPECT_GE(slots, 3);
      EXPECT_LE(slots, max_slots);
      EXPECT_LE(dynamic_bytes<n>(capacity), shared_bytes);
      EXPECT_GE(slots * slot_bytes, partials * partial_bytes(n));
    }
  };
  check(std::integral_constant<int, 8>{});
  check(std::integral_constant<int, 16>{});
  check(std::integral_constant<int, 32>{});
  EXPECT_EQ(ring_slots<16>(16), 6);
  EXPECT_EQ(ring_slots<32>(64), 5);
}

}  // namespace
}  // namespace msa::cuda::sm90::decode
