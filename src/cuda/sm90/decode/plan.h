// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/arithmetic.h"

/// \file
/// Schedule arithmetic of the decode kernel: pure functions of integers, the same on host and
/// device.
///
/// An item is one KV head of one request, with up to `rows` of its m query tokens. Its pages, the
/// ascending union of what the rows chose, are summed by one fixed tree: `segments(n)` runs of
/// consecutive pages, each with a running softmax; runs folded left to right into `groups` groups;
/// groups folded left to right. A cluster of CTAs shares an item by whole segments, so that the
/// cluster's size never changes a bit.

namespace msa::cuda::sm90::decode {

inline constexpr int groups = 4;
/// (row, query head) pairs of an item: O, S and the folds of more do not fit the registers.
inline constexpr int max_columns = 32;

/// Ids of an item: its lists must leave the ring room.
inline constexpr int max_ids = 512;

/// Rows of a request that one item takes: a function of m, G and topk alone.
MSA_HOST_DEVICE constexpr int item_rows(int m, int group, int topk) {
  const int by_columns = max_columns / group, by_ids = max_ids / topk;
  const int fitting = by_columns < by_ids ? by_columns : by_ids;
  return m < fitting ? m : fitting;
}

/// Columns of the products: rows · G rounded up to what the kernel is compiled for.
MSA_HOST_DEVICE constexpr int padded_columns(int columns) {
  return columns <= 8 ? 8 : columns <= 16 ? 16 : 32;
}

/// Segments of a group: with 16 columns a segment is one page of the usual 16, so that 16 CTAs can
/// share an item; with 32, a group besides the segment and the total has no registers left, and
/// four CTAs must do.
MSA_HOST_DEVICE constexpr int segments_per_group(int n) { return n <= 16 ? 4 : 1; }
MSA_HOST_DEVICE constexpr int segments(int n) { return groups * segments_per_group(n); }

/// Where segment `s` of `pages` pages begins.
MSA_HOST_DEVICE constexpr int segment_begin(int s, int pages, int n) {
  return s * pages / segments(n);
}
/// Whether the segments [begin, end) of a list of `pages` hold a page.
MSA_HOST_DEVICE constexpr bool any_page(int begin, int end, int pages, int n) {
  return segment_begin(begin, pages, n) < segment_begin(end, pages, n);
}

/// Segments of a group that its first partial result holds, where a CTA has `share` segments. Where
/// CTAs share a group, only its first can fold, as the fold starts at the left: the others hand
/// over every segment.
MSA_HOST_DEVICE constexpr int first_partial(int share, int n) {
  return share < segments_per_group(n) ? share : segments_per_group(n);
}
/// Partial results of a group in a cluster.
MSA_HOST_DEVICE constexpr int partials_of_group(int share, int n) {
  return 1 + segments_per_group(n) - first_partial(share, n);
}

/// The segments of the p-th partial result of group `g`.
struct Partial {
  int begin, end;
};
MSA_HOST_DEVICE constexpr Partial partial_of(int g, int p, int share, int n) {
  const int first = g * segments_per_group(n), end = first + first_partial(share, n);
  if (p == 0) return {first, end};
  return {end + p - 1, end + p};
}

/// Whether a partial result ends with segment `s`, and which of its group it is.
MSA_HOST_DEVICE constexpr bool ends_partial(int s, int share, int n) {
  return (s & (segments_per_group(n) - 1)) + 1 >= first_partial(share, n);
}
MSA_HOST_DEVICE constexpr int partial_index(int s, int share, int n) {
  return (s & (segments_per_group(n) - 1)) + 1 - first_partial(share, n);
}

/// Columns that each CTA of a cluster writes; with more CTAs than columns, the last write none.
MSA_HOST_DEVICE constexpr int columns_of_cta(int ctas, int n) { return ctas < n ? n / ctas : 1; }
/// log2 of it.
MSA_HOST_DEVICE constexpr int columns_of_cta_log2(int cluster_log2, int n) {
  const int columns_log2 = n == 8 ? 3 : n == 16 ? 4 : 5;
  return cluster_log2 < columns_log2 ? columns_log2 - cluster_log2 : 0;
}
static_assert(columns_of_cta(16, 16) == 1 && columns_of_cta(16, 8) == 1,
              "where a segment is a CTA's, a CTA writes one column");

/// CTAs of the cluster that shares each of `items` items, a power of two up to the segments: as
/// many as run at once, where `clusters[size]` of a size do. A choice of time alone.
constexpr int cluster_size(int items, const int* clusters, int n) {
  for (int ctas = segments(n); ctas > 1; ctas /= 2) {
    if (items <= clusters[ctas]) return ctas;
  }
  return 1;
}

}  // namespace msa::cuda::sm90::decode
