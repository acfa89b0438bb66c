// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "program.h"

/// \file
/// `msa soak` as a user runs it.

namespace msa::cli {
namespace {

using Json = nlohmann::json;

TEST(SoakCommand, finds_nothing_wrong_on_the_cpu) {
  const ProgramResult outcome =
      run_msa("soak --device cpu --seconds 4 --threads 2 --streams 2 --json");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const Json report = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.out;
  EXPECT_EQ(report["command"], "soak");
  EXPECT_EQ(report["passed"], true);
  EXPECT_EQ(report["wrong"], nullptr);
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["backends"], Json({"cpu"}));
  EXPECT_EQ(report["threads"], 2);
  EXPECT_EQ(report["streams"], 4);
  EXPECT_GE(report["rows"], report["steps"]);
  EXPECT_GT(report["steps"], 0);
  EXPECT_GT(report["seconds"], 0.0);
  EXPECT_TRUE(report["environment"].is_object());
}

TEST(SoakCommand, finds_a_spoiled_row_and_says_how_to_find_it_again) {
  const ProgramResult outcome = run_msa("soak --device cpu --seconds 60 --threads 2 --fault 5");
  EXPECT_EQ(outcome.code, 1);
  for (const char* words :
       {"wrong", "seed 1, lane 0, step 5 (", "row ", "attend: head 0, element 0"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << "\n" << outcome.out;
  }
  const std::size_t at = outcome.out.find("msa soak --device cpu");
  ASSERT_NE(at, std::string::npos) << outcome.out;
  const ProgramResult again =
      run_msa(outcome.out.substr(at + 4, outcome.out.find('\n', at) - at - 4));
  EXPECT_EQ(again.code, 1);
  const auto wrong = [](const std::string& text) {
    const std::size_t begin = text.find("seed 1, lane 0");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(wrong(again.out), wrong(outcome.out));
}

TEST(SoakCommand, too_few_rows_are_a_failure) {
  const ProgramResult few =
      run_msa("soak --device cpu --threads 1 --streams 1 --steps 2 --rows 1000000000");
  EXPECT_EQ(few.code, 1);
  EXPECT_NE(few.out.find("too few rows"), std::string::npos) << few.out;
  EXPECT_EQ(run_msa("soak --device cpu --threads 1 --rows 10").code, 0);
}

TEST(SoakCommand, refuses_wrong_use_in_words) {
  EXPECT_EQ(run_msa("soak --seconds 0").code, 2);
  EXPECT_EQ(run_msa("soak --streams 65").code, 2);
  const ProgramResult none = run_msa("soak --device cuda", "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("soak: argument '--device' is 'cuda': "), std::string::npos) << none.err;
}

}  // namespace
}  // namespace msa::cli
