// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <gtest/gtest.h>

#include "cli/filter.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

TEST(Output, DurationsAndSizesReadWell) {
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(12.34), "12.3 s");
  EXPECT_EQ(format_seconds(245), "4 min 05 s");
  EXPECT_EQ(format_seconds(3700), "1 h 01 min");
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(999.9e6), "1 GB");
  EXPECT_EQ(format_bytes(23.4e9), "23.4 GB");
}

TEST(Output, ProgressShowsShareRateAndRemainingTime) {
  EXPECT_EQ(progress_text("verify", "cases", 50, 200, 10),
            "verify  50/200 cases  25 %  5 cases/s  30.0 s left");
  EXPECT_EQ(progress_text("x", "steps", 7, 0, 2), "x  7 steps  3.5 steps/s");
  EXPECT_EQ(progress_text("x", "steps", 0, 4, 0), "x  0/4 steps  0 %  0 steps/s");
}

TEST(Output, CommandLinesCanBePastedIntoAShell) {
  const char* const argv[] = {"msa", "run", "a b.st", "--x=1", "it's", ""};
  EXPECT_EQ(Console(6, argv).command_line(), "msa run 'a b.st' --x=1 'it'\\''s' ''");
}

TEST(Output, AFileThatCannotBeWrittenIsNamed) {
  try {
    write_text("/no/such/folder/file", "text");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot write '/no/such/folder/file': No such file or directory");
  }
}

TEST(Filter, PlainTextIsSearchedPatternsMatchTheWholeName) {
  EXPECT_TRUE(matches_filter("attend_decode/report 20", ""));
  EXPECT_TRUE(matches_filter("attend_decode/report 20", "decode"));
  EXPECT_FALSE(matches_filter("attend_decode/report 20", "prefill"));
  EXPECT_TRUE(matches_filter("attend_decode/report 20", "attend*20"));
  EXPECT_TRUE(matches_filter("attend_decode/report 20", "*report ??"));
  EXPECT_TRUE(matches_filter("aXbXbc", "a*bc"));
  EXPECT_FALSE(matches_filter("attend_decode/report 20", "decode*"));
  EXPECT_FALSE(matches_filter("attend_decode/report 20", "*report ?"));
}

}  // namespace
}  // namespace msa::cli
