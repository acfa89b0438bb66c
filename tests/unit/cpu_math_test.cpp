// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
//
// The vector functions of softmax and the register-tiled product, on every instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "common/numeric.h"
#include "cpu/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_math_test.cpp"
#include "hwy/foreach_target.h"
// The target's copy of the code must come after foreach_target.h.
#include "cpu/math-inl.h"
#include "cpu/matmul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

void exp2_all(const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; i += hn::MaxLanes(F32())) {
    hn::StoreU(exp2_nonpositive(hn::LoadU(F32(), x + i)), F32(), y + i);
  }
}

template <DType type>
void round_all(const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; i += hn::MaxLanes(F32())) {
    hn::StoreU(round_probability<type>(hn::LoadU(F32(), x + i)), F32(), y + i);
  }
}
void round_all_bf16(const float* x, std::int64_t n, float* y) { round_all<DType::bf16>(x, n, y); }
void round_all_f16(const float* x, std::int64_t n, float* y) { round_all<DType::f16>(x, n, y); }

/// C[rows][128] = A[rows][128] · B or C · 0.5 + A · B, where B is K^T or V of a dense [count][128].
void product(DType type, const void* b, bool transposed, std::int64_t count, const float* a,
             std::int64_t rows, bool accumulate, float* c) {
  alignas(64) static float memory[panel_size];
  float* const panel = memory;
  std::vector<const float*> a_rows(rows);
  std::vector<float*> c_rows(rows);
  const std::vector<float> half(rows, 0.5f);
  for (std::int64_t i = 0; i < rows; ++i) {
    a_rows[i] = a + i * 128;
    c_rows[i] = c + i * 128;
  }
  RowPrefetch none;
  const std::int64_t columns = transposed ? count : 128;
  with_cache_type(type, [&](auto t) {
    const auto* from = static_cast<const Storage<t.value>*>(b);
    for (std::int64_t p = 0; p * panel_width < columns; ++p) {
      if (transposed) {
        pack_key_panel<t.value>(from, 128, count, p, panel);
      } else {
        pack_value_panel<t.value>(from, 128, count, p, panel);
      }
      const std::int64_t depth = transposed ? 128 : count;
      if (accumulate) {
        multiply_panel<true>(rows, a_rows.data(), panel, depth, half.data(), c_rows.data(),
                             p * panel_width, &none);
      } else {
        multiply_panel<false>(rows, a_rows.data(), panel, depth, nullptr, c_rows.data(),
                              p * panel_width, &none);
      }
    }
  });
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msa::cpu {
namespace {

class CpuMath : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { set_isa_for_testing(GetParam()); }
  void TearDown() override { set_isa_for_testing(available_isas().back()); }
};

TEST_P(CpuMath, Exp2IsWithinTwoUlp) {
  std::vector<float> x;
  for (int i = 0; i <= 1 << 20; ++i) x.push_back(-static_cast<float>(i) * (125.0f / (1 << 20)));
  for (int e = 1; e < 30; ++e) x.push_back(-std::ldexp(1.0f, -e));
  x.resize((x.size() + 15) / 16 * 16, 0.0f);
  std::vector<float> y(x.size());
  MSA_CPU_CHOOSE(exp2_all)(x.data(), x.size(), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    ASSERT_NEAR(y[i], want, 2 * ulp) << x[i];
  }
}

TEST_P(CpuMath, Exp2OfSpecialValues) {
  std::vector<float> x(16, -HUGE_VALF);
  x[0] = 0.0f;
  x[1] = -0.0f;
  x[2] = NAN;
  x[3] = -NAN;
  x[4] = -126.0f;
  x[5] = -3e38f;
  x[6] = -1.0f;
  x[7] = 0.3f;
  x[8] = 3e38f;
  x[9] = HUGE_VALF;
  std::vector<float> y(16);
  MSA_CPU_CHOOSE(exp2_all)(x.data(), 16, y.data());
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_EQ(y[5], 0.0f);
  EXPECT_EQ(y[6], 0.5f);
  for (int i = 7; i < 10; ++i) EXPECT_EQ(y[i], 1.0f);
  for (int i = 10; i < 16; ++i) EXPECT_EQ(y[i], 0.0f);
}

TEST_P(CpuMath, ProbabilitiesRoundToNearestEven) {
  std::mt19937 random(5);
  std::vector<float> x(1 << 16);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Uniform in the exponent; every fourth value lies half way between two bf16 numbers.
    x[i] = std::ldexp(0.5f + 0x1p-25f * (random() >> 8), -static_cast<int>(random() % 40));
    if (i % 4 == 0)
      x[i] = std::bit_cast<float>((std::bit_cast<std::uint32_t>(x[i]) & ~0xffffu) | 0x8000u);
  }
  std::vector<float> y(x.size());
  MSA_CPU_CHOOSE(round_all_bf16)(x.data(), x.size(), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], round_to(DType::bf16, x[i])) << x[i];
  MSA_CPU_CHOOSE(round_all_f16)(x.data(), x.size(), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], round_to(DType::f16, x[i])) << x[i];
}

/// Small integers, so that every sum is exact whatever its order.
struct Matrices {
  Matrices(DType type, std::int64_t count) : b(128 * 128 * size_of(type), 0xff), a(40 * 128) {
    std::mt19937 random(9);
    for (std::int64_t i = 0; i < count * 128; ++i) {
      values.push_back(static_cast<int>(random() % 7) - 3);
      store(type, b.data(), i, values.back());
    }
    for (float& x : a) x = static_cast<float>(random() % 9) - 4;
  }
  std::vector<std::uint8_t> b;
  std::vector<double> values;  // of b
  std::vector<float> a;
};

TEST_P(CpuMath, ProductsOfEveryShapeAreExactOnIntegers) {
  for (DType type : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2}) {
    for (std::int64_t count : {1, 2, 15, 16, 17, 64, 127, 128}) {
      const Matrices m(type, count);
      for (std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 40}) {
        for (bool transposed : {true, false}) {
          std::vector<float> c(rows * 128, 2.0f);
          MSA_CPU_CHOOSE(product)
          (type, m.b.data(), transposed, count, m.a.data(), rows, !transposed, c.data());
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t j = 0; j < (transposed ? count : 128); ++j) {
              double want = transposed ? 0 : 1;
              for (std::int64_t k = 0; k < (transposed ? 128 : count); ++k) {
                want += m.a[r * 128 + k] * m.values[transposed ? j * 128 + k : k * 128 + j];
              }
              ASSERT_EQ(c[r * 128 + j], want) << name(type) << ' ' << count << ' ' << rows;
            }
          }
        }
      }
    }
  }
}

TEST_P(CpuMath, RowsOfAProductDoNotDependOnTheRowsBesideThem) {
  Matrices m(DType::bf16, 100);
  for (float& x : m.a) x = std::sin(x + static_cast<float>(&x - m.a.data()));
  std::vector<float> together(40 * 128, 1.0f);
  std::vector<float> alone(40 * 128, 1.0f);
  MSA_CPU_CHOOSE(product)
  (DType::bf16, m.b.data(), false, 100, m.a.data(), 40, true, together.data());
  for (std::int64_t r = 0; r < 40; ++r) {
    MSA_CPU_CHOOSE(product)
    (DType::bf16, m.b.data(), false, 100, m.a.data() + r * 128, 1, true, alone.data() + r * 128);
  }
  EXPECT_EQ(together, alone);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CpuMath, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace msa::cpu
#endif  // HWY_ONCE
