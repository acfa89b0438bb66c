// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
//
// The vector conversions against common/numeric.h, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/numeric.h"
#include "cpu/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert_test.cpp"
#include "hwy/foreach_target.h"
// The target's copy of the code must come after foreach_target.h.
#include "cpu/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

void load_rows_as_f32(DType type, const void* src, std::int64_t stride, std::int64_t count,
                      float* dst) {
  with_dtype(type, [&](auto t) {
    convert_rows<t.value>(static_cast<const Storage<t.value>*>(src), stride, count, dst);
  });
}

void load_transposed(DType type, const void* src, std::int64_t stride, std::int64_t count,
                     float* dst, std::int64_t dst_stride) {
  with_dtype(type, [&](auto t) {
    convert_transposed<t.value>(static_cast<const Storage<t.value>*>(src), stride, count, dst,
                                dst_stride);
  });
}

void store_rows(DType type, const float* src, std::int64_t count, void* dst) {
  with_dtype(type, [&](auto t) {
    for (std::int64_t r = 0; r < count; ++r) {
      store_row<t.value>(src + r * 128, static_cast<Storage<t.value>*>(dst) + r * 128);
    }
  });
}

void round_rows(DType type, const float* src, std::int64_t count, float* dst) {
  with_dtype(type, [&](auto t) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) * 128; i += hn::Lanes(F32())) {
      hn::StoreU(round_f32<t.value>(hn::LoadU(F32(), src + i)), F32(), dst + i);
    }
  });
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msa::cpu {
namespace {

class Convert : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { set_isa_for_testing(GetParam()); }
  void TearDown() override { set_isa_for_testing(available_isas().back()); }
};

constexpr DType all_types[] = {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2};

bool same(float got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return std::bit_cast<std::uint32_t>(got) ==
         std::bit_cast<std::uint32_t>(static_cast<float>(want));
}

/// All patterns of a small type, in order, as rows of 128.
std::vector<std::uint8_t> all_patterns(DType type) {
  const std::size_t size = size_of(type);
  const std::size_t count = size == 1 ? 256 : 65536;
  std::vector<std::uint8_t> bytes(count * size);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * size, &i, size);
  return bytes;
}

TEST_P(Convert, LoadsEveryPatternExactly) {
  for (DType type : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2}) {
    const auto bytes = all_patterns(type);
    const std::int64_t count = static_cast<std::int64_t>(bytes.size() / size_of(type));
    std::vector<float> out(count);
    MSA_CPU_CHOOSE(load_rows_as_f32)(type, bytes.data(), 128, count / 128, out.data());
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(same(out[i], load(type, bytes.data(), i))) << name(type) << " pattern " << i;
    }
  }
}

TEST_P(Convert, StoresEveryLoadedPatternBack) {
  for (DType type : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2}) {
    const auto bytes = all_patterns(type);
    const std::int64_t count = static_cast<std::int64_t>(bytes.size() / size_of(type));
    std::vector<float> values(count);
    std::vector<std::uint8_t> back(bytes.size());
    MSA_CPU_CHOOSE(load_rows_as_f32)(type, bytes.data(), 128, count / 128, values.data());
    MSA_CPU_CHOOSE(store_rows)(type, values.data(), count / 128, back.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = load(type, bytes.data(), i);
      if (std::isinf(value) && is_fp8(type)) {
        ASSERT_EQ(load(type, back.data(), i), std::copysign(57344.0, value));
      } else if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(load(type, back.data(), i)));
      } else {
        ASSERT_EQ(std::memcmp(&bytes[i * size_of(type)], &back[i * size_of(type)], size_of(type)),
                  0)
            << name(type) << " pattern " << i;
      }
    }
  }
}

/// Values at, just below and just above each pattern and each midpoint of neighbours, and random
/// bits.
std::vector<float> hard_values(DType type) {
  const auto bytes = all_patterns(type);
  const std::int64_t count = static_cast<std::int64_t>(bytes.size() / size_of(type));
  std::vector<float> values;
  const auto add = [&](double x) {
    const auto f = static_cast<float>(x);
    for (float v : {f, std::nextafterf(f, HUGE_VALF), std::nextafterf(f, -HUGE_VALF)}) {
      values.push_back(v);
    }
  };
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    const double a = load(type, bytes.data(), i);
    const double b = load(type, bytes.data(), i + 1);
    add(a);
    add((a + b) / 2);
  }
  add(std::numeric_limits<double>::infinity());
  add(-std::numeric_limits<double>::infinity());
  add(0x1.FFFFFEp127);
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  values.resize((values.size() + 127) / 128 * 128, 1.0f);
  return values;
}

TEST_P(Convert, StoresRoundToNearestEvenSaturateAndKeepNaN) {
  for (DType type : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2}) {
    const std::vector<float> values = hard_values(type);
    std::vector<std::uint8_t> got(values.size() * size_of(type));
    std::vector<std::uint8_t> want(got.size());
    MSA_CPU_CHOOSE(store_rows)(type, values.data(), values.size() / 128, got.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      store(type, want.data(), i, values[i]);
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(load(type, got.data(), i))) << name(type) << " from NaN";
      } else {
        ASSERT_EQ(std::memcmp(&got[i * size_of(type)], &want[i * size_of(type)], size_of(type)), 0)
            << name(type) << " from " << values[i];
      }
    }
  }
}

TEST_P(Convert, RoundingAgreesWithStoring) {
  for (DType type : all_types) {
    const std::vector<float> values = hard_values(type == DType::f32 ? DType::bf16 : type);
    std::vector<float> got(values.size());
    MSA_CPU_CHOOSE(round_rows)(type, values.data(), values.size() / 128, got.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(same(got[i], round_to(type, values[i]))) << name(type) << " of " << values[i];
    }
  }
}

TEST_P(Convert, TransposedTilesHoldTheRowsAndZeroPadding) {
  std::mt19937 random(11);
  for (DType type : all_types) {
    for (std::int64_t count : {0, 1, 3, 4, 5, 8, 15, 16, 17, 63, 100, 127, 128}) {
      const std::int64_t stride = 256 + 3;
      // Elements between the rows are NaN patterns: reading one would show.
      std::vector<std::uint8_t> src((count * stride + 128) * size_of(type), 0xff);
      for (std::int64_t r = 0; r < count; ++r) {
        for (std::int64_t d = 0; d < 128; ++d) {
          store(type, src.data(), r * stride + d, static_cast<double>(random() % 255) - 127);
        }
      }
      const std::int64_t width = 144;
      std::vector<float> got(128 * width, -1e30f);
      MSA_CPU_CHOOSE(load_transposed)(type, src.data(), stride, count, got.data(), width);
      for (std::int64_t d = 0; d < 128; ++d) {
        for (std::int64_t r = 0; r < width; ++r) {
          const float x = got[d * width + r];
          if (r < count) {
            ASSERT_EQ(x, load(type, src.data(), r * stride + d)) << name(type) << ' ' << count;
          } else if (r < (count + 3) / 4 * 4) {
            ASSERT_EQ(x, 0.0f) << name(type) << ' ' << count << " key " << r;
          } else {
            ASSERT_TRUE(x == 0.0f || x == -1e30f);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Convert, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace msa::cpu
#endif  // HWY_ONCE
