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

void register_all(bool chosen_set_only) {
  std::vector<std::string> suites;
  std::vector<Target> all_targets = targets();
  if (chosen_set_only) {
    const std::string chosen = "cpu-" + cpu_info().isa;
    std::erase_if(all_targets,
                  [&](const Target& t) { return t.backend == "cpu" && t.name != chosen; });
  }
  for (const Case& c : all_cases()) {
    const std::string suite = c.op + "_" + c.group;
    if (suites.empty() || suites.back() != suite) suites.push_back(suite);
    for (const Target& target : all_targets) {
      if (!applies(c, target)) continue;
      testing::RegisterTest(suite.c_str(), plain(c.name + "/" + target.name).c_str(), nullptr,
                            nullptr, __FILE__, __LINE__,
                            [c, target]() -> testing::Test* { return new CaseTest(c, target); });
    }
  }
  testing::RegisterTest("conformance", "every suite has a ctest entry", nullptr, nullptr, __FILE__,
                        __LINE__, [suites]() -> testing::Test* { return new SuitesTest(suites); });
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
