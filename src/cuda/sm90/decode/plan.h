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
inline constexpr int max_columns = 64;  // (row, query head) pairs of an item

/// Rows of a request that one item takes: a function of m and G alone.
MSA_HOST_DEVICE constexpr int item_rows(int m, int group) {
  const int fitting = max_columns / group;
  return m < fitting ? m : fitting;
}

/// Columns of the products: rows · G rounded up to what the kernel is compiled for.
MSA_HOST_DEVICE constexpr int padded_columns(int columns) {
  return columns <= 8 ? 8 : columns <= 16 ? 16 : columns <= 32 ? 32 : 64;
}

/// Segments of a group: with 16 columns a segment is one page of the usual 16, so that 16 CTAs can
/// share an item; with 64, partial results are four times as large, and four CTAs must do.
MSA_HOST_DEVICE constexpr int segments_per_group(int n) { return n <= 16 ? 4 : n == 32 ? 2 : 1; }
MSA_HOST_DEVICE constexpr int segments(int n) { return groups * segments_per_group(n); }

/// Where segment `s` of `pages` pages begins.
MSA_HOST_DEVICE constexpr int segment_begin(int s, int pages, int n) {
  return s * pages / segments(n);
}

/// Whether a cluster of `ctas` can share an item. Between one CTA a group and one CTA a segment
/// there is nothing: a group's CTAs hand over one partial result each.
MSA_HOST_DEVICE constexpr bool splits(int ctas, int n) {
  return ctas == 1 || ctas == 4 || ctas == segments(n) || (ctas == 2 && n <= 32);
}

/// Partial results that one CTA keeps in shared memory: a group's and the total, or two groups'.
MSA_HOST_DEVICE constexpr int partials(int n) { return n == 64 ? 1 : 2; }

/// Partial results of a group in a cluster, and where the p-th of group `g` lies.
MSA_HOST_DEVICE constexpr int group_partials(int ctas, int n) {
  return ctas <= groups ? 1 : segments_per_group(n);
}
struct PartialPlace {
  int cta, slot;
};
MSA_HOST_DEVICE constexpr PartialPlace partial_place(int g, int p, int ctas, int n) {
  if (ctas > groups) return {g * segments_per_group(n) + p, 0};
  return {g * ctas / groups, g % (groups / ctas)};
}

/// CTAs a cluster for `items` items on a device with room for `resident` CTAs: as many as start at
/// once. A choice of time alone.
constexpr int cluster_size(std::int64_t items, std::int64_t resident, int n) {
  for (int ctas = segments(n); ctas > 1; ctas /= 2) {
    if (splits(ctas, n) && items * ctas <= resident) return ctas;
  }
  return 1;
}

}  // namespace msa::cuda::sm90::decode
