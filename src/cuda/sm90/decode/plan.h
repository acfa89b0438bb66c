// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file
/// Schedule arithmetic of the decode kernel: pure functions of integers, the same on host and
/// device.
///
/// An item is one KV head of one request, with up to `rows` of its m query tokens. Its pages, the
/// ascending union of what the rows chose, are summed by one fixed tree: `segments(n)` runs of
/// consecutive pages, each with a running softmax; runs folded left to right into `groups` groups;
/// groups folded left to right. A cluster of CTAs shares an item by whole segments, so that the
/// cluster's size never changes a bit.

#if defined(__CUDACC__)
#define MSA_HOST_DEVICE __host__ __device__
#else
#define MSA_HOST_DEVICE
#endif

namespace msa::cuda::sm90::decode {

inline constexpr int groups = 4;
/// (row, query head) pairs of an item: O, S and the folds of more do not fit the registers.
inline constexpr int max_columns = 32;

/// Rows of a request that one item takes: a function of m and G alone.
MSA_HOST_DEVICE constexpr int item_rows(int m, int group) {
  const int fitting = max_columns / group;
  return m < fitting ? m : fitting;
}

/// floor(i / size) by a product and a shift: exact for i below 1,024 and sizes of 1 to 64 (columns
/// by G, ids by topk).
inline constexpr int row_shift = 16;
MSA_HOST_DEVICE constexpr int row_factor(int size) { return (1 << row_shift) / size + 1; }
MSA_HOST_DEVICE constexpr int row_of(int i, int factor) { return i * factor >> row_shift; }

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

/// Whether a cluster of `ctas` can share an item.
MSA_HOST_DEVICE constexpr bool splits(int ctas, int n) {
  return ctas == 1 || ctas == 2 || (ctas >= groups && segments(n) % ctas == 0);
}

/// Partial results of a group in a cluster. Where CTAs share a group, only its first can fold, as
/// the fold starts at the left: the others hand over every segment.
MSA_HOST_DEVICE constexpr int partials_of_group(int ctas, int n) {
  if (ctas <= groups) return 1;
  const int each = segments(n) / ctas;  // segments of a CTA
  return 1 + segments_per_group(n) - each;
}
/// Whether CTA `rank` hands over two results instead of one.
MSA_HOST_DEVICE constexpr bool has_two(int rank, int ctas, int n) {
  return ctas == 2 || (ctas == 2 * groups && segments(n) == 2 * ctas && rank % 2 == 1);
}
inline constexpr int partials = 2;

/// The p-th partial result of group `g`: where it lies, and its segments.
struct Partial {
  int cta, slot;
  int begin, end;
};
MSA_HOST_DEVICE constexpr Partial partial_of(int g, int p, int ctas, int n) {
  const int first = g * segments_per_group(n), end = first + segments_per_group(n);
  if (ctas == 2) return {g / 2, g % 2, first, end};
  if (ctas == groups) return {g, 0, first, end};
  if (ctas == segments(n)) return {first + p, 0, first + p, first + p + 1};
  if (p == 0) return {2 * g, 0, first, first + 2};  // two CTAs a group, of two segments each
  return {2 * g + 1, p - 1, first + 1 + p, first + 2 + p};
}

/// Whether the partial result that segment `s` belongs to ends with it: with its group, or, where
/// CTAs share the group, with the first CTA's segments and then with every one.
MSA_HOST_DEVICE constexpr bool ends_partial(int s, int ctas, int n) {
  const int in_group = s % segments_per_group(n);
  if (ctas <= groups) return in_group + 1 == segments_per_group(n);
  return in_group + 1 >= segments(n) / ctas;
}

/// Columns that each CTA of a cluster writes; with more CTAs than columns, the last write none.
MSA_HOST_DEVICE constexpr int columns_of_cta(int ctas, int n) { return ctas < n ? n / ctas : 1; }
static_assert(columns_of_cta(16, 16) == 1 && columns_of_cta(16, 8) == 1,
              "where a segment is a CTA's, a CTA writes one column");

/// CTAs of the cluster that shares each of `items` items: as many as run at once, where
/// `clusters[size]` of a size do. A choice of time alone.
constexpr int cluster_size(int items, const int* clusters, int n) {
  for (int ctas = segments(n); ctas > 1; ctas /= 2) {
    if (splits(ctas, n) && items <= clusters[ctas]) return ctas;
  }
  return 1;
}

}  // namespace msa::cuda::sm90::decode
