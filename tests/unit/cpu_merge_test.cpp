// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
//
// merge_states on the CPU against the f64 reference and its exact rules, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/numeric.h"
#include "cpu/isa.h"
#include "cpu/operators.h"
#include "reference/reference.h"

namespace msa::cpu {
namespace {

constexpr float infinity = HUGE_VALF;

class CpuMerge : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { set_isa_for_testing(GetParam()); }
  void TearDown() override { set_isa_for_testing(available_isas().back()); }
};

/// Two sides of `tokens` rows and two heads; the outputs' rows lie apart from each other.
struct Sides {
  Sides(DType element, std::int64_t rows) : type(element), tokens(rows) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (auto* out : {&a, &b, &out_bytes}) out->resize(tokens * 2 * 128 * size_of(type));
    for (auto* lse : {&lse_a, &lse_b, &lse_out}) lse->resize(tokens * 2);
    for (std::int64_t i = 0; i < tokens * 2 * 128; ++i) {
      store(type, a.data(), i, normal(random));
      store(type, b.data(), i, normal(random));
    }
    for (std::int64_t i = 0; i < tokens * 2; ++i) {
      lse_a[i] = 8 * normal(random);
      lse_b[i] = 8 * normal(random);
    }
  }
  MergeArgs args() {
    const auto rows = [&](auto& bytes) {
      return Tensor::dense(bytes.data(), type, {tokens, 2, 128});
    };
    const auto numbers = [&](auto& v) { return Tensor::dense(v.data(), DType::f32, {tokens, 2}); };
    return {rows(a),         numbers(lse_a),   rows(b), numbers(lse_b),
            rows(out_bytes), numbers(lse_out), {}};
  }

  DType type;
  std::int64_t tokens;
  std::vector<std::uint8_t> a, b, out_bytes;
  std::vector<float> lse_a, lse_b, lse_out;
};

constexpr DType merge_types[] = {DType::bf16, DType::f16, DType::f32};

TEST_P(CpuMerge, MatchesTheReferenceWithOneRounding) {
  for (DType type : merge_types) {
    Sides s(type, 700);
    cpu::merge_states(s.args());
    const auto want = reference::merge_states(s.args());
    for (std::int64_t i = 0; i < s.tokens * 2 * 128; ++i) {
      const double got = load(type, s.out_bytes.data(), i);
      // Half a unit of the type, and the f32 sum's error where its terms cancel.
      const double ulp = type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
      ASSERT_NEAR(got, want.out[i], ulp * std::fabs(want.out[i]) * 1.01 + 2e-6) << name(type);
    }
    for (std::int64_t i = 0; i < s.tokens * 2; ++i) {
      ASSERT_NEAR(s.lse_out[i], want.lse[i], std::fabs(want.lse[i]) * 0x1p-23);
    }
  }
}

TEST_P(CpuMerge, AnEmptySideIsAnExactNoOpWhateverItsValues) {
  for (DType type : merge_types) {
    Sides s(type, 4);
    const std::size_t row = 128 * size_of(type);
    std::memset(s.a.data(), 0xff, row);            // NaN
    std::memset(s.b.data() + row, 0xff, row);      // NaN
    std::memset(s.a.data() + 2 * row, 0xff, row);  // both sides empty
    s.lse_a[0] = s.lse_b[1] = s.lse_a[2] = s.lse_b[2] = -infinity;
    cpu::merge_states(s.args());
    EXPECT_EQ(std::memcmp(s.out_bytes.data(), s.b.data(), row), 0);
    EXPECT_EQ(std::memcmp(s.out_bytes.data() + row, s.a.data() + row, row), 0);
    EXPECT_EQ(s.lse_out[0], s.lse_b[0]);
    EXPECT_EQ(s.lse_out[1], s.lse_a[1]);
    EXPECT_EQ(
        std::vector<std::uint8_t>(row),
        std::vector<std::uint8_t>(s.out_bytes.begin() + 2 * row, s.out_bytes.begin() + 3 * row));
    EXPECT_EQ(s.lse_out[2], -infinity);
  }
}

TEST_P(CpuMerge, NaNPropagates) {
  Sides s(DType::bf16, 3);
  s.lse_a[0] = s.lse_b[1] = s.lse_a[2] = NAN;
  s.lse_b[2] = -infinity;
  cpu::merge_states(s.args());
  for (int row : {0, 1}) {
    EXPECT_TRUE(std::isnan(s.lse_out[row]));
    for (int d = 0; d < 128; ++d) {
      EXPECT_TRUE(std::isnan(load(DType::bf16, s.out_bytes.data(), row * 128 + d)));
    }
  }
  EXPECT_TRUE(std::isnan(s.lse_out[2]));
}

TEST_P(CpuMerge, InPlaceGivesTheSameBits) {
  for (DType type : merge_types) {
    Sides s(type, 300);
    s.lse_a[0] = s.lse_b[1] = -infinity;
    cpu::merge_states(s.args());
    MergeArgs in_place = s.args();
    in_place.out = Tensor::dense(s.a.data(), type, {s.tokens, 2, 128});
    in_place.lse = Tensor::dense(s.lse_a.data(), DType::f32, {s.tokens, 2});
    cpu::merge_states(in_place);
    EXPECT_EQ(s.a, s.out_bytes);
    EXPECT_EQ(s.lse_a, s.lse_out);
  }
}

TEST_P(CpuMerge, NoRowsIsAValidCall) {
  Sides s(DType::bf16, 0);
  cpu::merge_states(s.args());
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CpuMerge, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace msa::cpu
