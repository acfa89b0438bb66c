// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace msa::cli {
namespace {

struct PrefillCell {
  std::int64_t tokens;
  std::int64_t context;
  std::int64_t keep;
  std::uint64_t checksum;
};

/// The published checksums of the grid, from its definition in another language.
TEST(Generate, PrefillSelectionsHaveThePublishedChecksums) {
  const PrefillCell cells[] = {
      {2048, 0, 970, 0x15a92cd298320b25},      {2048, 0, 900, 0x15a92cd298320b25},
      {2048, 0, 0, 0x15a92cd298320b25},        {2048, 24576, 970, 0xa24c341c59a16d2f},
      {2048, 24576, 900, 0x1887fb46325c99c4},  {2048, 24576, 0, 0x42112475991a85c2},
      {2048, 122880, 970, 0x4422c2cf72a2100c}, {2048, 122880, 900, 0xe56a74ac0aed785e},
      {2048, 122880, 0, 0x2b30b8e0bbf89493},   {8192, 0, 970, 0x458fa92c33d6895c},
      {8192, 0, 900, 0x1f3e6e3ec7a9b72f},      {8192, 0, 0, 0xd586f9625c77d027},
      {8192, 24576, 970, 0x7910d87aee2cf8db},  {8192, 24576, 900, 0xc58a455d0b8af39b},
      {8192, 24576, 0, 0x4edb6d9f31443cfe},    {8192, 122880, 970, 0x7da5736e43ec653c},
      {8192, 122880, 900, 0x15162397919fb177}, {8192, 122880, 0, 0x6ff92413132b898f},
  };
  for (const PrefillCell& c : cells) {
    EXPECT_EQ(ids_checksum(selection_rows(c.tokens, c.context, 4, c.keep, 11)), c.checksum)
        << c.tokens << " tokens at " << c.context << ", keep " << c.keep;
  }
}

TEST(Generate, DecodeSelectionsHaveThePublishedChecksums) {
  constexpr std::int64_t context = 131072 - 3;
  EXPECT_EQ(ids_checksum(decode_rows(64, 1, context, 4, 1)), 0xddbcdd0cc64181e9);
  EXPECT_EQ(ids_checksum(decode_rows(64, 4, context, 4, 1)), 0x528f48380314d31f);
  EXPECT_EQ(ids_checksum(decode_rows(64, 8, context, 4, 1)), 0x207284e5acadaa05);
  EXPECT_EQ(ids_checksum(decode_rows(64, 16, context, 4, 1)), 0x0f9b0d56464939cb);
}

TEST(Generate, TablesHaveThePublishedChecksum) {
  // The published number runs over rows of at least 16 entries, which these have.
  EXPECT_EQ(ids_checksum(table_rows(64, 1024, 300000, 7)), 0x3a5da9bbb7be957e);
}

TEST(Generate, TablesNameNoPageTwiceAndStopAtThePool) {
  const std::vector<std::int32_t> whole = table_rows(4, 8, 32, 3);
  EXPECT_EQ(std::set<std::int32_t>(whole.begin(), whole.end()).size(), 32U);
  EXPECT_EQ(table_rows(4, 8, 10, 3).size(), 10U);
}

TEST(Generate, RowsAreAscendingAndEndInTheOwnBlock) {
  const std::int64_t first = 16 * 128 - 5;
  const std::vector<std::int32_t> ids = selection_rows(300, first, 2, 500, 9);
  for (std::int64_t row = 0; row < 600; ++row) {
    const auto begin = ids.begin() + row * generated_topk;
    const auto end = std::find(begin, begin + generated_topk, -1);
    EXPECT_TRUE(std::is_sorted(begin, end));
    EXPECT_EQ(std::adjacent_find(begin, end), end);
    EXPECT_EQ(*(end - 1), (first + row / 2) / 128);
  }
}

}  // namespace
}  // namespace msa::cli
