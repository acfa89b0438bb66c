// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
//
// attend on the CPU against the f64 reference and its bitwise promises, on every instruction set.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "attend_case.h"
#include "cpu/isa.h"
#include "cpu/parallel.h"
#include "reference/reference.h"
#include "started_pool.h"

namespace msa::cpu {
namespace {

using testing::AttendCase;
using testing::AttendShape;

class CpuAttend : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { set_isa_for_testing(GetParam()); }
  void TearDown() override {
    set_isa_for_testing(available_isas().back());
    set_num_threads_for_testing(0);
  }
};

/// The contract's bounds: near the exact result, and no worse than twice what rounding costs.
void expect_close(AttendCase& c, const AttendArgs& args, double v_unit = 1) {
  const auto exact = reference::attend(args);
  const auto rounded = reference::attend(args, reference::AttendMath::rounded);
  const auto& lse = rounded.lse;  // on the rounded q; sums are taken of unrounded P
  double worst = 0, worst_rounded = 0, error2 = 0, norm2 = 0;
  for (std::size_t i = 0; i < exact.out.size(); ++i) {
    const double got = load(c.shape.out, c.out.data(), static_cast<std::int64_t>(i));
    ASSERT_TRUE(std::isfinite(got)) << "element " << i;
    const double e = std::fabs(got - exact.out[i]);
    worst = std::max(worst, e);
    worst_rounded = std::max(worst_rounded, std::fabs(rounded.out[i] - exact.out[i]));
    error2 += e * e;
    norm2 += exact.out[i] * exact.out[i];
  }
  EXPECT_LE(worst, 1.7e-2 * v_unit);
  EXPECT_LE(worst, 2 * worst_rounded + 1e-5 * v_unit);
  EXPECT_LE(std::sqrt(error2), 4e-3 * std::sqrt(norm2));
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(lse[i])) {
      ASSERT_EQ(c.lse[i], lse[i]) << "row " << i;
    } else {
      ASSERT_NEAR(c.lse[i], lse[i], 1e-4 + std::ldexp(std::fabs(lse[i]), -20)) << "row " << i;
    }
  }
}

void expect_matches(const AttendShape& shape) {
  AttendCase c(shape);
  c.run(c.args());
  expect_close(c, c.args());
}

TEST_P(CpuAttend, PrefillMatchesTheReference) {
  expect_matches({.heads = 16, .kv_heads = 4, .prefill_lens = {{65, 129}, {70, 257}, {33, 385}}});
  expect_matches({.heads = 16, .prefill_lens = {{20, 2500}, {0, 300}, {1, 1}}, .padding = 2});
}

TEST_P(CpuAttend, DecodeMatchesTheReference) {
  for (std::int64_t m : {1, 3, 16}) {
    expect_matches({.heads = 8, .kv_heads = 2, .m = m, .decode_lens = {0, 1, 127, 128, 129, 2049}});
  }
}

TEST_P(CpuAttend, MixedBatchMatchesTheReference) {
  expect_matches({.heads = 8,
                  .kv_heads = 2,
                  .lists = 1,
                  .topk = 6,
                  .m = 2,
                  .decode_lens = {300, 0, 2500},
                  .prefill_lens = {{7, 1000}, {20, 20}},
                  .padding = 3});
}

TEST_P(CpuAttend, EveryGroupSizeMatchesTheReference) {
  for (std::int64_t group = 1; group <= 16; ++group) {
    expect_matches({.heads = 2 * group,
                    .kv_heads = 2,
                    .topk = 4,
                    .decode_lens = {300},
                    .prefill_lens = {{5, 400}}});
  }
}

TEST_P(CpuAttend, EveryTypeMatchesTheReference) {
  for (DType q : {DType::bf16, DType::f16}) {
    for (DType cache : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2}) {
      SCOPED_TRACE(std::string(name(q)) + " q, " + name(cache) + " cache");
      expect_matches({.heads = 8,
                      .decode_lens = {700},
                      .prefill_lens = {{9, 900}},
                      .q = q,
                      .cache = cache,
                      .out = q == DType::bf16 ? DType::f16 : DType::bf16});
    }
  }
}

TEST_P(CpuAttend, AHugeLogitWeighsOneBesideItself) {
  for (double x : {10000.0, 60000.0}) {
    AttendCase c({.decode_lens = {1},
                  .prefill_lens = {{1, 1}},
                  .q = DType::f16,
                  .cache = DType::f16,
                  .out = DType::f16});
    for (std::int64_t i = 0; i < c.tokens * 16 * 128; ++i) store(DType::f16, c.q.data(), i, x);
    for (std::int64_t request : {0, 1}) {
      for (std::int64_t d = 0; d < 256; ++d) {
        store(DType::f16, c.cache.data(), c.key_slot(request, 0) + d, d < 128 ? x : 1.0);
      }
    }
    c.run(c.args());
    const double logit = 128 * x * x * c.args().softmax_scale;
    for (std::int64_t row = 0; row < c.tokens * 16; ++row) {
      ASSERT_EQ(load(DType::f16, c.out.data(), row * 128), 1.0) << x;
      ASSERT_NEAR(c.lse[row], logit, std::ldexp(logit, -17)) << x;
    }
  }
}

// Logits of base 2 are 1.44 times as large: those would pass the end of f32 here, and so would the
// products of a row that was scaled by more than the factor of its logits.
TEST_P(CpuAttend, LogitsUpToTheEndOfF32AreFinite) {
  struct Size {
    double q;
    float scale;
  };
  for (const Size& size : {Size{1.7e38, 1.7f}, Size{2.3e38, 1.4f}, Size{3.3e38, 1.0f}}) {
    for (const double other : {0.5, -1.0}) {
      for (const std::int32_t length : {2, 700}) {  // one group of blocks and two
        SCOPED_TRACE(::testing::Message() << size.q << " " << other << " " << length);
        AttendCase c({.decode_lens = {length}, .prefill_lens = {{1, length}}});
        for (std::int64_t i = 0; i < c.tokens * 16 * 128; ++i) {
          store(DType::bf16, c.q.data(), i, i % 128 == 0 ? size.q : 0);
        }
        for (std::int64_t request : {0, 1}) {
          for (std::int64_t key = 0; key < length; ++key) {
            const bool last = key == length - 1;
            const std::int64_t at = c.key_slot(request, key);
            store(DType::bf16, c.cache.data(), at, last ? 1 : other);
            for (std::int64_t d = 128; d < 256; ++d) {
              store(DType::bf16, c.cache.data(), at + d, last ? 1 : 2);
            }
          }
        }
        for (std::size_t i = 0; i < c.selection.size(); ++i) {
          c.selection[i] = static_cast<std::int32_t>(i % 16);
        }
        AttendArgs args = c.args();
        args.softmax_scale = size.scale;
        c.run(args);
        const double logit = load(DType::bf16, c.q.data(), 0) * args.softmax_scale;
        for (std::int64_t row = 0; row < c.tokens * 16; ++row) {
          ASSERT_EQ(load(DType::bf16, c.out.data(), row * 128), 1.0);
          ASSERT_NEAR(c.lse[row], logit, std::ldexp(logit, -20));
        }
      }
    }
  }
}

TEST_P(CpuAttend, NonCausalRowsSeeAllKeys) {
  AttendCase c({.m = 2, .decode_lens = {1, 400}, .prefill_lens = {{9, 300}}});
  AttendArgs args = c.args();
  args.causal = false;
  c.run(args);
  expect_close(c, args);
}

TEST_P(CpuAttend, ScalesFoldAndMayLieInTensors) {
  AttendCase c({.decode_lens = {500}, .prefill_lens = {{9, 300}}, .cache = DType::e4m3});
  AttendArgs args = c.args();
  float k_scale = 0.25f;
  float v_scale = 0.5f;
  args.k_scale = Scale(ConstTensor::dense(&k_scale, DType::f32, {1}));
  args.v_scale = Scale(ConstTensor::dense(&v_scale, DType::f32, {1}));
  c.run(args);
  expect_close(c, args);
  const auto first = c.out;
  args.k_scale = 0.25f;
  args.v_scale = 0.5f;
  c.run(args);
  EXPECT_EQ(first, c.out);
}

TEST_P(CpuAttend, TinyAndHugeFactorsNeitherOverflowNorFlush) {
  for (int power : {-120, -22, 22, 120}) {
    AttendCase c({.decode_lens = {500}, .prefill_lens = {{9, 300}}});
    for (std::int64_t i = 0; i < c.tokens * 16 * 128; ++i) {
      store(DType::bf16, c.q.data(), i, std::ldexp(load(DType::bf16, c.q.data(), i), power));
    }
    AttendArgs args = c.args();
    args.softmax_scale = std::ldexp(args.softmax_scale, -power);
    c.run(args);
    SCOPED_TRACE(power);
    expect_close(c, args);
  }
}

/// Multiplies K (`first` 0) or V (128) of a request's keys from `key` on by 2^power.
void scale_keys(AttendCase& c, std::int64_t request, std::int64_t key, std::int64_t first,
                int power) {
  for (; key < c.seq_lens[request]; ++key) {
    for (std::int64_t i = c.key_slot(request, key) + first, end = i + 128; i < end; ++i) {
      store(DType::bf16, c.cache.data(), i,
            std::ldexp(load(DType::bf16, c.cache.data(), i), power));
    }
  }
}

// Tiles read denormal operands as 0 and flush sums. 2^-130 of a number of unit variance is
// denormal, and so are most of those of 2^-125.
TEST_P(CpuAttend, DenormalQueriesKeysAndValuesCount) {
  const std::tuple<int, int, int> powers[] = {{-130, 120, 0}, {-125, 120, 0}, {120, -130, 0},
                                              {120, -125, 0}, {0, 0, -130},   {0, 0, -125},
                                              {0, 0, -110}};
  for (const auto& [q, k, v] : powers) {
    SCOPED_TRACE(::testing::Message() << q << " " << k << " " << v);
    AttendCase c({.decode_lens = {500}, .prefill_lens = {{9, 300}}});
    for (std::int64_t i = 0; i < c.tokens * 16 * 128; ++i) {
      store(DType::bf16, c.q.data(), i, std::ldexp(load(DType::bf16, c.q.data(), i), q));
    }
    for (std::int64_t request : {0, 1}) {
      scale_keys(c, request, 0, 0, k);
      scale_keys(c, request, 0, 128, v);
    }
    AttendArgs args = c.args();
    args.softmax_scale = std::ldexp(args.softmax_scale, -q - k);
    args.v_scale = v == 0 ? 1.0f : 0x1p100f;
    c.run(args);
    expect_close(c, args, v == 0 ? 1 : std::ldexp(1.0, v + 100));
  }
}

// Weights round, so that the end of out's type may be passed on the way to it; what lies beyond it
// by more than that is infinite in out's type.
TEST_P(CpuAttend, ResultsPastTheEndOfOutAreInfinite) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const std::pair<double, double> results[] = {{65504, 65504}, {-65504, -65504}, {65519, 65504},
                                               {66400, inf},   {-66400, -inf},   {70000, inf},
                                               {0x1p100, inf}};
  for (const auto& [exact, want] : results) {
    AttendCase c({.decode_lens = {300}, .prefill_lens = {{9, 300}}, .out = DType::f16});
    for (std::int64_t request : {0, 1}) {
      for (std::int64_t key = 0; key < 300; ++key) {
        for (std::int64_t d = 128; d < 256; ++d) {
          store(DType::bf16, c.cache.data(), c.key_slot(request, key) + d, 1);
        }
      }
    }
    AttendArgs args = c.args();
    args.v_scale = static_cast<float>(exact);
    c.run(args);
    for (std::int64_t i = 0; i < c.tokens * 16 * 128; ++i) {
      const double got = load(DType::f16, c.out.data(), i);
      if (std::isinf(want)) {
        ASSERT_EQ(got, want) << exact;
      } else {
        ASSERT_NEAR(got / want, 1, 0x1p-8) << exact;
      }
    }
  }
}

TEST_P(CpuAttend, OneHugeQueryElementStaysExact) {
  for (DType cache : {DType::bf16, DType::f16}) {
    AttendCase c({.decode_lens = {500}, .cache = cache});
    store(DType::bf16, c.q.data(), 5, 1e5);
    c.run(c.args());
    expect_close(c, c.args());
  }
}

// ---- bitwise promises ----

TEST_P(CpuAttend, BitsDependNeitherOnThreadsNorOnTheWorkspace) {
  AttendCase c({.heads = 32,
                .kv_heads = 2,
                .m = 2,
                .decode_lens = {5000, 300},
                .prefill_lens = {{70, 2000}}});
  set_num_threads_for_testing(1);
  c.run(c.args(), false);
  const auto out = c.out;
  const auto lse = c.lse;
  for (int threads : {1, 2, 5, 16}) {
    for (bool workspace : {false, true}) {
      set_num_threads_for_testing(threads);
      std::fill(c.out.begin(), c.out.end(), 0xff);
      c.run(c.args(), workspace);
      EXPECT_EQ(out, c.out) << threads << workspace;
      EXPECT_EQ(lse, c.lse) << threads << workspace;
    }
  }
}

TEST_P(CpuAttend, PrefillRowsDoNotDependOnTheirNeighboursOrChunks) {
  AttendCase whole({.heads = 16, .prefill_lens = {{150, 1700}}});
  whole.run(whole.args());
  AttendCase part({.heads = 16, .prefill_lens = {{150, 1700}}});
  // The same rows as four chunks, each a call of its own.
  for (auto [begin, end] : {std::pair{0, 1}, {1, 40}, {40, 141}, {141, 150}}) {
    AttendArgs args = part.args();
    const std::int32_t cu[2] = {0, end - begin};
    const std::int32_t context = 1550 + begin;
    const std::int32_t seq_len = 1550 + end;
    args.q = args.q.narrow(0, begin, end - begin);
    args.selection = args.selection.narrow(0, begin, end - begin);
    args.out = args.out.narrow(0, begin, end - begin);
    args.lse = args.lse.narrow(0, begin, end - begin);
    args.batch.cu_seqlens_q = ConstTensor::dense(cu, DType::i32, {2});
    args.batch.context_lens = ConstTensor::dense(&context, DType::i32, {1});
    args.batch.seq_lens = ConstTensor::dense(&seq_len, DType::i32, {1});
    args.batch.num_actual_tokens = end - begin;
    part.run(args);
  }
  EXPECT_EQ(whole.out, part.out);
  EXPECT_EQ(whole.lse, part.lse);
}

// Rows share the products of a tile with rows that see more: with keys whose values are no numbers,
// and with elements that tiles would flush.
TEST_P(CpuAttend, RowsDoNotDependOnKeysThatOnlyTheirNeighboursSee) {
  const AttendShape shape{.heads = 8, .kv_heads = 2, .prefill_lens = {{40, 300}}};
  constexpr std::int64_t first = 281, rows = first - 260;  // keys from here on; rows before them
  AttendCase clean(shape);
  clean.run(clean.args());
  const auto run_with = [&](const auto& change) {
    AttendCase c(shape);
    change(c);
    c.run(c.args());
    const auto bytes = static_cast<std::ptrdiff_t>(rows * 8 * 128 * 2);
    EXPECT_TRUE(std::equal(c.out.begin(), c.out.begin() + bytes, clean.out.begin()));
    EXPECT_TRUE(std::equal(c.lse.begin(), c.lse.begin() + rows * 8, clean.lse.begin()));
    EXPECT_NE(c.out, clean.out);
  };
  run_with([](AttendCase& c) { scale_keys(c, 0, first, 0, -130); });
  run_with([](AttendCase& c) { scale_keys(c, 0, first, 128, -130); });
  for (const double x :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const std::int64_t part : {0, 128}) {
      run_with([&](AttendCase& c) {
        store(DType::bf16, c.cache.data(), c.key_slot(0, first + 2) + part + 7, x);
      });
    }
  }
}

TEST_P(CpuAttend, OrderHolesAndRepeatsOfTheSelectionDoNotMatter) {
  AttendCase c({.m = 2, .decode_lens = {4000}, .prefill_lens = {{20, 3000}}});
  c.run(c.args());
  const auto out = c.out;
  const auto lse = c.lse;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    auto* ids = c.selection.data() + t * 16;
    std::vector<std::int32_t> set(ids, ids + 16);
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    std::fill_n(ids, 16, -1);
    std::copy(set.rbegin(), set.rend(), ids);
    for (std::int64_t i = static_cast<std::int64_t>(set.size()); i < 16; ++i) {
      const std::int32_t fillers[] = {set[0], -7, std::numeric_limits<std::int32_t>::max()};
      ids[i] = fillers[i % 3];
    }
  }
  c.run(c.args());
  EXPECT_EQ(out, c.out);
  EXPECT_EQ(lse, c.lse);
}

TEST_P(CpuAttend, WhatNoRowOwnsNeverShows) {
  AttendCase c({.m = 3, .decode_lens = {130, 700}, .prefill_lens = {{20, 333}}});
  c.run(c.args());
  const auto out = c.out;
  // Slots past the lengths and the spare page held NaN until now.
  std::vector<std::uint8_t> owned(c.pages * 128, 0);
  for (std::int64_t r = 0; r < c.requests(); ++r) {
    for (std::int64_t key = 0; key < c.seq_lens[r]; ++key) owned[c.key_slot(r, key) / 256] = 1;
  }
  for (std::int64_t s = 0; s < c.pages * 128; ++s) {
    for (int d = 0; owned[s] == 0 && d < 256; ++d) {
      store(DType::bf16, c.cache.data(), s * 256 + d, 3e38);
    }
  }
  c.run(c.args());
  EXPECT_EQ(out, c.out);
}

TEST_P(CpuAttend, RowsPastTheTokensAreNotTouched) {
  AttendCase c({.prefill_lens = {{9, 300}}, .padding = 3});
  AttendArgs args = c.args();
  args.batch.num_actual_tokens = 10;
  c.run(args);
  for (std::size_t i = 10 * 16 * 128 * 2; i < c.out.size(); ++i) ASSERT_EQ(c.out[i], 0xff);
  for (std::size_t i = 9 * 16; i < 10 * 16; ++i) ASSERT_EQ(c.lse[i], -HUGE_VALF);
  for (std::size_t i = 10 * 16; i < c.lse.size(); ++i) ASSERT_TRUE(std::isnan(c.lse[i]));
}

// ---- IEEE rules ----

/// Head 0's result of each token: NaN, empty or a number.
char kind_of(const AttendCase& c, std::int64_t token) {
  const std::int64_t row = token * c.shape.heads;
  int nans = 0;
  int zeros = 0;
  for (int d = 0; d < 128; ++d) {
    const double x = load(c.shape.out, c.out.data(), row * 128 + d);
    nans += std::isnan(x);
    zeros += x == 0;
  }
  if (nans == 128 && std::isnan(c.lse[row])) return 'n';
  if (zeros == 128 && c.lse[row] == -HUGE_VALF) return 'e';
  return nans == 0 && std::isfinite(c.lse[row]) ? 'f' : '?';
}

/// A decode request that selects everything, with every K element of key 100 set and q = 1.
char kind_with_key(double k, double v, bool every_key) {
  AttendCase c({.topk = 4, .decode_lens = {300}});
  for (int i = 0; i < 4; ++i) c.selection[i] = i;
  for (std::int64_t i = 0; i < 16 * 128; ++i) store(DType::bf16, c.q.data(), i, 1.0);
  for (std::int64_t key = every_key ? 0 : 100; key < (every_key ? 300 : 101); ++key) {
    for (int d = 0; d < 128; ++d) {
      store(DType::bf16, c.cache.data(), c.key_slot(0, key) + d, k);
      store(DType::bf16, c.cache.data(), c.key_slot(0, key) + 128 + d, v);
    }
  }
  c.run(c.args());
  return kind_of(c, 0);
}

TEST_P(CpuAttend, NonFiniteLogitsFollowIeee) {
  const double inf = HUGE_VAL;
  const double nan = std::nan("");
  EXPECT_EQ(kind_with_key(nan, 1, false), 'n');
  EXPECT_EQ(kind_with_key(nan, 1, true), 'n');
  EXPECT_EQ(kind_with_key(inf, 1, false), 'n');
  EXPECT_EQ(kind_with_key(inf, 1, true), 'n');
  EXPECT_EQ(kind_with_key(-inf, 1, false), 'f');
  EXPECT_EQ(kind_with_key(-inf, 1, true), 'e');
  EXPECT_EQ(kind_with_key(-inf, nan, true), 'e');
  EXPECT_EQ(kind_with_key(-3e38, 1, true), 'e');  // the dot product passes f32: −inf
}

TEST_P(CpuAttend, NaNAndInfInValuesReachTheRow) {
  AttendCase c({.topk = 4, .decode_lens = {300}});
  for (int i = 0; i < 4; ++i) c.selection[i] = i;
  store(DType::bf16, c.cache.data(), c.key_slot(0, 7) + 128 + 3, std::nan(""));
  store(DType::bf16, c.cache.data(), c.key_slot(0, 8) + 128 + 5, HUGE_VAL);
  c.run(c.args());
  for (int d = 0; d < 128; ++d) {
    const double x = load(DType::bf16, c.out.data(), d);
    if (d == 3) {
      EXPECT_TRUE(std::isnan(x));
    } else if (d == 5) {
      EXPECT_FALSE(std::isfinite(x));
    } else {
      EXPECT_TRUE(std::isfinite(x));
    }
  }
  EXPECT_TRUE(std::isfinite(c.lse[0]));
}

TEST_P(CpuAttend, NaNOfLaterKeysStaysWithTheRowsThatSeeThem) {
  AttendCase c({.heads = 16, .prefill_lens = {{16, 316}}});
  for (std::int64_t t = 0; t < 16; ++t) {
    for (int i = 0; i < 16; ++i) c.selection[t * 16 + i] = i;
  }
  c.run(c.args());
  const auto clean = c.out;
  // Key 308 belongs to token 8: tokens 0 … 7 must keep their bits.
  for (int d = 0; d < 256; ++d) store(DType::bf16, c.cache.data(), c.key_slot(0, 308) + d, NAN);
  c.run(c.args());
  for (std::int64_t t = 0; t < 16; ++t) EXPECT_EQ(kind_of(c, t), t < 8 ? 'f' : 'n') << t;
  EXPECT_EQ(std::memcmp(clean.data(), c.out.data(), 8 * 16 * 128 * 2), 0);
}

// ---- metadata that does not fit ----

TEST_P(CpuAttend, NeededTableEntriesOutOfRangeCountAsNotSelected) {
  AttendCase c({.topk = 4, .decode_lens = {500, 500}});
  for (int i = 0; i < 8; ++i) c.selection[i] = i % 4;
  c.table[1] = -1;
  c.table[2] = static_cast<std::int32_t>(c.pages);
  c.run(c.args());
  const auto out = c.out;
  c.selection[1] = c.selection[2] = -1;
  c.run(c.args());
  EXPECT_EQ(out, c.out);
  expect_close(c, c.args());
}

TEST_P(CpuAttend, TablesNarrowerThanTheLengthsAreNotReadPastTheirWidth) {
  AttendCase c({.topk = 4, .decode_lens = {500}, .prefill_lens = {{5, 500}}});
  for (std::int64_t i = 0; i < 6 * 4; ++i) c.selection[i] = i % 4;
  AttendArgs args = c.args();
  args.batch.block_table.shape[1] = 2;
  c.run(args);
  expect_close(c, args);
}

TEST_P(CpuAttend, LengthsThatDoNotFitNeverLeaveTheBuffers) {
  AttendCase c({.decode_lens = {300}, .prefill_lens = {{5, 300}, {6, 200}}});
  for (std::vector<std::int32_t> cu :
       {std::vector<std::int32_t>{0, 100000, 3}, {-50, 4, 11}, {5, 2, 1 << 30}, {0, 0, -9}}) {
    c.cu = cu;
    c.seq_lens[0] = -5;
    std::fill(c.lse.begin(), c.lse.end(), NAN);
    c.run(c.args());
    EXPECT_EQ(kind_of(c, 0), 'e');
    for (float x : c.lse) EXPECT_FALSE(std::isnan(x)) << "every row is written";
  }
}

TEST_P(CpuAttend, EmptyCallsDoNothing) {
  AttendCase c(AttendShape{});
  c.run(c.args());
  AttendCase no_pages({.decode_lens = {0}});
  AttendArgs args = no_pages.args();
  args.kv_cache.packed.shape[0] = 0;
  args.kv_cache.packed.data = nullptr;
  no_pages.run(args);
  EXPECT_EQ(kind_of(no_pages, 0), 'e');
}

TEST_P(CpuAttend, ShardsMergeToTheWhole) {
  AttendCase whole({.decode_lens = {3000}, .prefill_lens = {{20, 2100}}});
  whole.run(whole.args());
  for (int world : {2, 3, 8}) {
    AttendCase sum({.decode_lens = {3000}, .prefill_lens = {{20, 2100}}, .out = DType::f16});
    AttendCase part({.decode_lens = {3000}, .prefill_lens = {{20, 2100}}, .out = DType::f16});
    std::vector<float> total(whole.tokens * 16 * 128, NAN);
    std::vector<float> piece(total.size());
    for (int rank = 0; rank < world; ++rank) {
      AttendArgs args = part.args();
      args.kv_shard = {rank, world};
      // A shard's table has only its own columns.
      std::vector<std::int32_t> table(part.requests() * part.width, -1);
      for (std::int64_t r = 0; r < part.requests(); ++r) {
        for (std::int64_t b = rank; b < part.width; b += world) {
          table[r * part.width + b / world] = part.table[r * part.width + b];
        }
      }
      args.batch.block_table.data = table.data();
      part.run(args);
      for (std::size_t i = 0; i < piece.size(); ++i) {
        piece[i] = static_cast<float>(load(DType::f16, part.out.data(), i));
      }
      if (rank == 0) std::fill(sum.lse.begin(), sum.lse.end(), -HUGE_VALF);
      MergeArgs merge;
      merge.out_a = Tensor::dense(total.data(), DType::f32, {whole.tokens, 16, 128});
      merge.lse_a = Tensor::dense(sum.lse.data(), DType::f32, {whole.tokens, 16});
      merge.out_b = Tensor::dense(piece.data(), DType::f32, {whole.tokens, 16, 128});
      merge.lse_b = Tensor::dense(part.lse.data(), DType::f32, {whole.tokens, 16});
      merge.out = Tensor::dense(total.data(), DType::f32, {whole.tokens, 16, 128});
      merge.lse = Tensor::dense(sum.lse.data(), DType::f32, {whole.tokens, 16});
      cpu::merge_states(merge);
    }
    for (std::size_t i = 0; i < total.size(); ++i) {
      ASSERT_NEAR(total[i], load(DType::bf16, whole.out.data(), i), 1.7e-2);
    }
    for (std::size_t i = 0; i < sum.lse.size(); ++i) ASSERT_NEAR(sum.lse[i], whole.lse[i], 2e-4);
  }
}

// The right to use tile registers is the process's; a child has it too.
TEST_P(CpuAttend, AForkedChildComputesTheSameBits) {
#ifdef MSA_TEST_EMULATED
  GTEST_SKIP() << "qemu's user mode aborts in a forked child that starts threads";
#endif
  start_whole_pool(2);
  const AttendShape shape{.decode_lens = {700, 300}, .prefill_lens = {{40, 300}}};
  AttendCase c(shape);
  c.run(c.args());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    AttendCase again(shape);
    again.run(again.args());
    _exit(again.out == c.out && again.lse == c.lse ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, CpuAttend, ::testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace msa::cpu
