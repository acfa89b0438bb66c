// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cuda/sm90/decode/config.h"

/// \file
/// Schedule arithmetic of the SM90 decode kernel, which needs no device.

namespace msa::cuda::sm90::decode {
namespace {

constexpr int all_columns[] = {8, 16, 32};

TEST(DecodePlan, RowsAndColumnsFitTheProductsAndTheLists) {
  for (int group = 1; group <= max_group; ++group) {
    for (int m = 1; m <= 16; ++m) {
      for (int topk = 1; topk <= max_topk; ++topk) {
        const int rows = item_rows(m, group, topk);
        ASSERT_GE(rows, 1);
        ASSERT_LE(rows, m);
        ASSERT_LE(rows * topk, max_ids);
        ASSERT_LE(rows * group, padded_columns(rows * group));
        ASSERT_LE(padded_columns(rows * group), max_columns);
      }
    }
  }
  EXPECT_EQ(item_rows(1, 16, 16), 1);
  EXPECT_EQ(item_rows(4, 16, 16), 2);
  EXPECT_EQ(item_rows(4, 8, 16), 4);
  EXPECT_EQ(item_rows(16, 1, 16), 16);
  EXPECT_EQ(item_rows(16, 1, 64), 8);
}

TEST(DecodePlan, DivisionByAProductIsExact) {
  for (int size = 1; size <= max_topk; ++size) {
    for (int i = 0; i < 1024; ++i) {
      ASSERT_EQ(row_of(i, row_factor(size)), i / size) << i << " / " << size;
    }
  }
  for (std::uint32_t size = 1; size < 3000; ++size) {
    const Divisor by(size);
    for (std::int64_t i : {0, 1, 63, 64, 65, 1000, 123456789, 2147483646, 2147483647}) {
      ASSERT_EQ(by.quotient(static_cast<int>(i)), i / size) << i << " / " << size;
    }
    for (std::int64_t multiple = size; multiple < 2147483647;
         multiple = multiple * 5 / size * size + size) {
      ASSERT_EQ(by.quotient(static_cast<int>(multiple)), multiple / size)
          << multiple << " / " << size;
      ASSERT_EQ(by.quotient(static_cast<int>(multiple - 1)), (multiple - 1) / size);
    }
  }
}

TEST(DecodePlan, SegmentsCoverTheListOnce) {
  for (int n : all_columns) {
    for (int pages = 0; pages <= max_ids; ++pages) {
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

/// Whatever the cluster: groups' results in order are the segments in order, each of one CTA, and
/// the first of a group alone is folded.
TEST(DecodePlan, PartialResultsOfAnyClusterAreTheSameTree) {
  for (int n : all_columns) {
    for (int ctas = 1; ctas <= segments(n); ctas *= 2) {
      const int share = segments(n) / ctas;
      int next = 0;
      for (int g = 0; g < groups; ++g) {
        for (int p = 0; p < partials_of_group(share, n); ++p) {
          const Partial partial = partial_of(g, p, share, n);
          EXPECT_EQ(partial.begin, next);
          EXPECT_GT(partial.end, partial.begin);
          EXPECT_TRUE(p == 0 || partial.end == partial.begin + 1);
          EXPECT_EQ(partial.begin / share, (partial.end - 1) / share) << "one CTA has all of it";
          for (int s = partial.begin; s < partial.end; ++s) {
            EXPECT_EQ(ends_partial(s, share, n), s + 1 == partial.end) << s << " of " << ctas;
          }
          EXPECT_EQ(partial_index(partial.end - 1, share, n), p);
          next = partial.end;
        }
        EXPECT_EQ(next, (g + 1) * segments_per_group(n));
      }
    }
  }
}

TEST(DecodePlan, EveryColumnIsWrittenOnce) {
  for (int n : all_columns) {
    for (int ctas = 2; ctas <= segments(n); ctas *= 2) {
      const int each = columns_of_cta(ctas, n);
      EXPECT_EQ(1 << columns_of_cta_log2(std::countr_zero(static_cast<unsigned>(ctas)), n), each);
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

// Report 40: a kernel asks for no more shared memory than a block of its device can have.
TEST(DecodePlan, RingsHoldAPageBesideTheRest) {
  const auto check = [](auto columns) {
    constexpr int n = decltype(columns)::value;
    for (int capacity : {1, 16, 64, 256, max_ids}) {
      EXPECT_GE(ring_slots<n>(capacity, 1), 4) << "a page of 16 bits";
      for (int ctas = 1; ctas <= segments(n); ctas *= 2) {
        if (ring_slots<n>(capacity, ctas) == 0) continue;
        EXPECT_LE(ring_slots<n>(capacity, ctas), max_slots);
        EXPECT_LE(dynamic_bytes<n>(capacity, ctas), shared_bytes);
      }
    }
    // The usual topk: CTAs of clusters of two receive the most.
    for (int ctas = 2; ctas <= segments(n); ctas *= 2) {
      EXPECT_GE(ring_slots<n>(64, ctas), least_slots(2)) << ctas << " CTAs, " << n << " columns";
    }
  };
  check(std::integral_constant<int, 8>{});
  check(std::integral_constant<int, 16>{});
  check(std::integral_constant<int, 32>{});
  // Of long lists and 32 columns, two CTAs leave one slot.
  Clusters resident = {};
  resident[2] = 128;
  resident[4] = 60;
  EXPECT_EQ(clusters_with_ring<32>(resident, 64, least_slots(2)), resident);
  Clusters without = resident;
  without[2] = 0;
  EXPECT_EQ(clusters_with_ring<32>(resident, max_ids, least_slots(2)), without);
  EXPECT_EQ(ring_slots<16>(16, 1), 6);
  EXPECT_EQ(ring_slots<16>(16, 2), 5);
  EXPECT_EQ(ring_slots<32>(64, 1), 5);
}

}  // namespace
}  // namespace msa::cuda::sm90::decode
