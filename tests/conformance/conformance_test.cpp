// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>

#include "msa/device.h"
#include "verify/memory.h"
#include "verify/verify.h"

/// \file
/// Registers every case of the conformance grid once per target, as
/// `<op>_<group>.<name>/<target>`; CMakeLists.txt makes one ctest entry of each suite. With
/// --chosen-set, the CPU is one target: the instruction set in use.

namespace msa::verify {
namespace {

class CaseTest : public testing::Test {
 public:
  CaseTest(Case c, Target target) : case_(std::move(c)), target_(std::move(target)) {}
  void TestBody() override {
    const Outcome outcome = run(case_, target_);
    RecordProperty("worst", std::to_string(outcome.worst));
    EXPECT_TRUE(outcome.passed) << outcome.detail;
  }

 private:
  Case case_;
  Target target_;
};

/// What GoogleTest's filters can name.
std::string plain(std::string name) {
  for (char& c : name) {
    if (c == ':' || c == '*' || c == '?') c = ';';
    if (c == '-') c = '_';
  }
  return name;
}

/// Every suite of the table has a ctest entry, or its cases would never run there.
class SuitesTest : public testing::Test {
 public:
  explicit SuitesTest(std::vector<std::string> suites) : suites_(std::move(suites)) {}
  void TestBody() override {
    std::vector<std::string> known;
    std::istringstream list(MSA_CONFORMANCE_SUITES);
    for (std::string suite; list >> suite;) known.push_back(suite);
    for (const std::string& suite : suites_) {
      EXPECT_NE(std::find(known.begin(), known.end(), suite), known.end())
          << suite << " is missing from tests/conformance/CMakeLists.txt";
    }
    for (const std::string& suite : known) {
      EXPECT_NE(std::find(suites_.begin(), suites_.end(), suite), suites_.end())
          << suite << " has no case";
    }
  }

 private:
  std::vector<std::string> suites_;
};

/// A dimension of a grid: what its values are in the names of cells.
using Dimension = std::vector<std::string>;

/// The grids rotate their dimensions over the cells: every two values of two dimensions must meet
/// in some cell, or a fault that needs both would go unseen.
class PairsTest : public testing::Test {
 public:
  PairsTest(std::vector<std::string> names, std::vector<Dimension> dimensions)
      : names_(std::move(names)), dimensions_(std::move(dimensions)) {}
  void TestBody() override {
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      for (std::size_t j = i + 1; j < dimensions_.size(); ++j) {
        for (const std::string& a : dimensions_[i]) {
          for (const std::string& b : dimensions_[j]) {
            const bool met = std::any_of(names_.begin(), names_.end(), [&](const std::string& n) {
              return ("," + n).find(a) != std::string::npos && n.find(b) != std::string::npos;
            });
            EXPECT_TRUE(met) << "no cell has both '" << a << "' and '" << b << "'";
          }
        }
      }
    }
  }

 private:
  std::vector<std::string> names_;
  std::vector<Dimension> dimensions_;
};

/// Of both grids: rows of padding, types and layouts.
std::vector<Dimension> with_common(std::vector<Dimension> dimensions) {
  dimensions.insert(dimensions.end(),
                    {{", 0 padding rows", ", 2 padding rows"},
                     {", q bf16", ", q f16"},
                     {", kv bf16", ", kv f16", ", kv e4m3", ", kv e5m2"},
                     {", LBHNC", ", LBNHC", ", LHBNC", ", BLHNC", ", BLNHC", ", BHLNC"}});
  return dimensions;
}

std::vector<Dimension> decode_dimensions() {
  return with_common(
      {{",64/4 heads", ",32/2 heads", ",16/1 heads", ",8/1 heads", ",4/1 heads", ",9/3 heads",
        ",12/1 heads", ",24/2 heads", ",4/4 heads", ",8/4 heads", ",20/4 heads", ",24/4 heads"},
       {", m 1,", ", m 2,", ", m 3,", ", m 4,", ", m 8,", ", m 16,"}});
}

/// Without the heads, which have fewer cells each than there are layouts.
std::vector<Dimension> prefill_dimensions() {
  return with_common({{", 129/257 x2", ", 65,129,257 of", ", 300 at"}, {", invariant", ", free"}});
}

void register_all(bool chosen_set_only) {
  std::vector<std::string> suites, decode_cells, prefill_cells;
  std::vector<Target> all_targets = targets();
  if (chosen_set_only) {
    const std::string chosen = "cpu-" + cpu_info().isa;
    std::erase_if(all_targets,
                  [&](const Target& t) { return t.backend == "cpu" && t.name != chosen; });
  }
  for (const Case& c : all_cases()) {
    const std::string suite = c.op + "_" + c.group;
    if (suites.empty() || suites.back() != suite) suites.push_back(suite);
    if (suite == "attend_decode") decode_cells.push_back(c.name);
    if (suite == "attend_prefill") prefill_cells.push_back(c.name);
    for (const Target& target : all_targets) {
      if (!applies(c, target)) continue;
      testing::RegisterTest(suite.c_str(), plain(c.name + "/" + target.name).c_str(), nullptr,
                            nullptr, __FILE__, __LINE__,
                            [c, target]() -> testing::Test* { return new CaseTest(c, target); });
    }
  }
  testing::RegisterTest("conformance", "every suite has a ctest entry", nullptr, nullptr, __FILE__,
                        __LINE__, [suites]() -> testing::Test* { return new SuitesTest(suites); });
  testing::RegisterTest("conformance", "every two values of two dimensions meet in a decode cell",
                        nullptr, nullptr, __FILE__, __LINE__, [decode_cells]() -> testing::Test* {
                          return new PairsTest(decode_cells, decode_dimensions());
                        });
  testing::RegisterTest("conformance", "every two values of two dimensions meet in a prefill cell",
                        nullptr, nullptr, __FILE__, __LINE__, [prefill_cells]() -> testing::Test* {
                          return new PairsTest(prefill_cells, prefill_dimensions());
                        });
}

#ifdef MSA_TEST_ADDRESS_SANITIZER
/// What the cases of the memory groups rely on: no read beside an array goes unseen.
TEST(conformance, AReadOfAGuardBandIsAFault) {
  const Array array(targets().front(), DType::f32, {4}, Poison::nan);
  const volatile std::byte* first = array.buffer().data();
  const volatile std::byte* end = first + array.buffer().bytes();
  EXPECT_DEATH(static_cast<void>(first[-1]), "use-after-poison");
  EXPECT_DEATH(static_cast<void>(*end), "use-after-poison");
}
#endif

}  // namespace
}  // namespace msa::verify

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  msa::verify::register_all(argc > 1 && std::string(argv[1]) == "--chosen-set");
  return RUN_ALL_TESTS();
}
