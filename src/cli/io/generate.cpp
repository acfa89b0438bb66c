// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/generate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "msa/types.h"

namespace msa::cli {
namespace {

using Row = std::vector<std::int32_t>;

/// Ids of a token in block `own`, given those of the token before.
Row next_row(const Row& before, std::int32_t own, std::int64_t keep_permille, SplitMix64& random) {
  Row row;
  if (own < generated_topk) {
    row.resize(static_cast<std::size_t>(own) + 1);
    std::iota(row.begin(), row.end(), 0);
    return row;
  }
  const auto others = static_cast<std::size_t>(generated_topk - 1);
  for (std::int32_t block : before) {
    if (block != own && random.chance(keep_permille)) row.push_back(block);
  }
  while (row.size() > others) {  // on the way into a new block one too many may survive
    row.erase(row.begin() + random.below(static_cast<std::int64_t>(row.size())));
  }
  while (row.size() < others) {
    const auto block = static_cast<std::int32_t>(random.below(own));
    if (std::find(row.begin(), row.end(), block) == row.end()) row.push_back(block);
  }
  std::sort(row.begin(), row.end());
  row.push_back(own);
  return row;
}

}  // namespace

std::vector<std::int32_t> selection_rows(std::int64_t tokens, std::int64_t first_position,
                                         std::int64_t heads, std::int64_t keep_permille,
                                         std::uint64_t seed) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * heads * generated_topk), -1);
  for (std::int64_t h = 0; h < heads; ++h) {
    SplitMix64 random(seed * 1000003 + static_cast<std::uint64_t>(h));
    Row row;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto own = static_cast<std::int32_t>((first_position + t) / page_size);
      row = next_row(row, own, keep_permille, random);
      std::copy(row.begin(), row.end(), ids.begin() + (t * heads + h) * generated_topk);
    }
  }
  return ids;
}

std::vector<std::int32_t> decode_rows(std::int64_t batch, std::int64_t m, std::int64_t context,
                                      std::int64_t heads, std::uint64_t seed) {
  constexpr std::int64_t keep_permille = 900;
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(batch * m * heads * generated_topk));
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::uint64_t request_seed = seed * 100003 + static_cast<std::uint64_t>(b);
    const std::vector<std::int32_t> rows =
        selection_rows(m, context - m, heads, keep_permille, request_seed);
    ids.insert(ids.end(), rows.begin(), rows.end());
  }
  return ids;
}

std::vector<std::int32_t> table_rows(std::int64_t batch, std::int64_t blocks, std::int64_t pool,
                                     std::uint64_t seed) {
  std::vector<std::int32_t> pages(static_cast<std::size_t>(pool));
  std::iota(pages.begin(), pages.end(), 0);
  SplitMix64 random(seed);
  const std::int64_t needed = std::min(batch * blocks, pool);
  for (std::int64_t i = 0; i < needed; ++i) {
    const std::int64_t j = i + random.below(pool - i);
    std::swap(pages[static_cast<std::size_t>(i)], pages[static_cast<std::size_t>(j)]);
  }
  pages.resize(static_cast<std::size_t>(needed));
  return pages;
}

std::uint64_t ids_checksum(std::span<const std::int32_t> ids) {
  std::uint64_t checksum = 0xCBF29CE484222325;
  for (std::int32_t id : ids) {
    checksum = (checksum ^ static_cast<std::uint32_t>(id)) * 0x100000001B3;
  }
  return checksum;
}

}  // namespace msa::cli
