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
/// `unit_pages(tiles)` consecutive pages, each a running softmax from nothing; units folded left to
/// right into groups of `group_units(tiles)`; groups folded left to right. Where several CTAs share
/// an item, each takes a run of `share` units and leaves in the workspace what no later fold of the
/// tree would tear apart: the fold of a group's first units, and every other unit by itself. A
/// second kernel ends the folds. So no split changes a bit.

namespace msa::cuda::portable::decode {

/// (row, query head) pairs of an item: four m16 tiles share what is read of a page.
inline constexpr int max_pairs = 64;
/// Ids of an item: its lists must leave the ring room.
MSA_HOST_DEVICE constexpr int max_ids(int tiles) { return tiles == 2 ? 64 : 256; }

MSA_HOST_DEVICE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Rows of a request that one item takes: a function of m, G and topk alone.
MSA_HOST_DEVICE constexpr int item_rows(int m, int group, int topk) {
  const int by_pairs = max_pairs / group, by_ids = max_ids(4) / topk;
  const int fitting = by_pairs < by_ids ? by_pairs : by_ids;
  return m < fitting ? m : fitting;
}

/// m16 tiles of so many pairs and ids, as the kernel is compiled.
MSA_HOST_DEVICE constexpr int tiles_of(int pairs, int ids) {
  return pairs <= 16 ? 1 : pairs <= 32 && ids <= max_ids(2) ? 2 : 4;
}

/// Pages of a unit, the least that a CTA computes. Four tiles have no registers for a unit, a group
/// and a total at once: their only group is the total, and larger units keep the partial results
/// few.
MSA_HOST_DEVICE constexpr int unit_pages(int tiles) { return tiles == 4 ? 2 : 1; }
MSA_HOST_DEVICE constexpr int units_of(int pages, int tiles) {
  return ceil_div(pages, unit_pages(tiles));
}
/// Units of a group; all of them, where a group is the total.
MSA_HOST_DEVICE constexpr bool has_groups(int tiles) { return tiles < 4; }
MSA_HOST_DEVICE constexpr int group_units(int tiles) { return has_groups(tiles) ? 4 : 1 << 20; }

/// Consecutive units of a CTA where `splits` CTAs share `units`: in groups, a divisor or a multiple
/// of a group.
MSA_HOST_DEVICE constexpr int share_of(int units, int splits, int tiles) {
  const int least = ceil_div(units, splits);
  if (!has_groups(tiles)) return least;
  const int group = group_units(tiles);
  return least <= 1 ? 1 : least <= 2 ? 2 : ceil_div(least, group) * group;
}

/// Whether unit `u` is folded into those of its group before it by the CTA whose first unit is
/// `first`; if not, it is a partial result by itself.
MSA_HOST_DEVICE constexpr bool joins_group(int u, int first, int tiles) {
  return first <= u / group_units(tiles) * group_units(tiles);
}
/// Whether unit `u` starts a partial result, where each CTA has `share` units. The result lies in
/// the workspace's place `u`.
MSA_HOST_DEVICE constexpr bool starts_partial(int u, int share, int tiles) {
  return u % group_units(tiles) == 0 || !joins_group(u, u / share * share, tiles);
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
