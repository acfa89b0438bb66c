// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/host_device.h"

/// \file
/// Schedule arithmetic of the portable decode kernel: pure functions of integers, the same on host
/// and device.
///
/// An item is one KV head of one request, with up to `item_rows` of its m query tokens. Its pages,
/// the ascending union of what the rows chose, are summed by one fixed tree: units of
/// `unit_pages` consecutive pages, each a running softmax from nothing; units folded left to right
/// into groups of `group_units`; groups folded left to right. Where several CTAs share
/// an item, each takes a run of `share` units and leaves in the workspace what no later fold of the
/// tree would tear apart: the fold of a group's first units, and every other unit by itself. A
/// second kernel ends the folds. So no split changes a bit.

namespace msa::cuda::portable::decode {

/// (row, query head) pairs of an item: two m16 tiles share what is read of a page.
inline constexpr int max_pairs = 32;
/// Ids of an item: its lists must leave the ring room.
MSA_HOST_DEVICE constexpr int max_ids(int tiles) { return tiles == 1 ? 256 : 64; }

MSA_HOST_DEVICE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
MSA_HOST_DEVICE constexpr int least_of(int a, int b) { return a < b ? a : b; }

/// Rows of a request that one item takes: a function of m, G and topk alone.
MSA_HOST_DEVICE constexpr int item_rows(int m, int group, int topk) {
  const int one = least_of(16 / group, max_ids(1) / topk);
  const int two = least_of(max_pairs / group, max_ids(2) / topk);
  return least_of(m, one > two ? one : two);
}

/// m16 tiles of so many pairs.
MSA_HOST_DEVICE constexpr int tiles_of(int pairs) { return pairs <= 16 ? 1 : 2; }

/// Pages of a unit, the least that a CTA computes.
inline constexpr int unit_pages = 1;
/// Units of a group.
inline constexpr int group_units = 4;

/// Consecutive units of a CTA where `splits` CTAs share `units`: a divisor or a multiple of a
/// group.
MSA_HOST_DEVICE constexpr int share_of(int units, int splits) {
  const int least = ceil_div(units, splits);
  return least <= 1 ? 1 : least <= 2 ? 2 : ceil_div(least, group_units) * group_units;
}

/// Whether unit `u` is folded into those of its group before it by the CTA whose first unit is
/// `first`; if not, it is a partial result by itself.
MSA_HOST_DEVICE constexpr bool joins_group(int u, int first) {
  return first <= u / group_units * group_units;
}
/// Whether unit `u` starts a partial result, where each CTA has `share` units. The result lies in
/// the workspace's place `u`.
MSA_HOST_DEVICE constexpr bool starts_partial(int u, int share) {
  return u % group_units == 0 || !joins_group(u, u / share * share);
}

/// CTAs that share each of `items` items of up to `units` units, on a device that runs `resident`
/// CTAs at once. A choice of time alone.
constexpr int splits_of(std::int64_t items, int units, int resident) {
  if (items <= 0 || 2 * items > resident) return 1;
  const std::int64_t fitting = resident / items;
  return static_cast<int>(fitting < units ? fitting : units);
}

/// Bytes of a partial result: O [16 tiles][128], then (maximum, sum) of each row.
MSA_HOST_DEVICE constexpr std::int64_t partial_bytes(int tiles) {
  return std::int64_t{16} * tiles * (128 * 4 + 8);
}
/// Bytes of an item's partial results and what precedes them, its number of units.
inline constexpr std::int64_t header_bytes = 16;
MSA_HOST_DEVICE constexpr std::int64_t item_bytes(int units, int tiles) {
  return header_bytes + units * partial_bytes(tiles);
}
/// The workspace of a split call.
constexpr std::int64_t split_bytes(std::int64_t items, int units, int tiles) {
  return items * item_bytes(units, tiles);
}

}  // namespace msa::cuda::portable::decode
