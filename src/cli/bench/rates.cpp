// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/rates.h"

#include "cli/bench/rates_tiles.h"
#include "cpu/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cli/bench/rates.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace msa::cli::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Ten chains cover the latency of two multiply-add units (4 or 5 cycles each) and leave registers
/// for the factors in the smallest register file (16).
double MultiplyAdds(std::int64_t iterations) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  V a0 = hn::Iota(d, 0.0f), a1 = hn::Iota(d, 1.0f), a2 = hn::Iota(d, 2.0f);
  V a3 = hn::Iota(d, 3.0f), a4 = hn::Iota(d, 4.0f), a5 = hn::Iota(d, 5.0f);
  V a6 = hn::Iota(d, 6.0f), a7 = hn::Iota(d, 7.0f), a8 = hn::Iota(d, 8.0f);
  V a9 = hn::Iota(d, 9.0f);
  for (std::int64_t i = 0; i < iterations; ++i) {
    a0 = hn::MulAdd(a0, factor, term);
    a1 = hn::MulAdd(a1, factor, term);
    a2 = hn::MulAdd(a2, factor, term);
    a3 = hn::MulAdd(a3, factor, term);
    a4 = hn::MulAdd(a4, factor, term);
    a5 = hn::MulAdd(a5, factor, term);
    a6 = hn::MulAdd(a6, factor, term);
    a7 = hn::MulAdd(a7, factor, term);
    a8 = hn::MulAdd(a8, factor, term);
    a9 = hn::MulAdd(a9, factor, term);
  }
  const V sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                        hn::Add(hn::Add(a4, a5), hn::Add(a6, hn::Add(a7, hn::Add(a8, a9)))));
  const float kept = hn::GetLane(hn::SumOfLanes(d, sum));
  // The chains converge to 1: the comparison keeps the loop alive and never changes the count.
  const double chains = kept > -1.0f ? 10.0 : 0.0;
  return chains * 2.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(iterations);
}

std::uint32_t Read(const void* data, std::size_t bytes) {
  const hn::ScalableTag<std::uint32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* words = static_cast<const std::uint32_t*>(data);
  const std::size_t count = bytes / sizeof(std::uint32_t);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Xor(a, hn::LoadU(d, words + i));
    b = hn::Xor(b, hn::LoadU(d, words + i + lanes));
    c = hn::Xor(c, hn::LoadU(d, words + i + 2 * lanes));
    e = hn::Xor(e, hn::LoadU(d, words + i + 3 * lanes));
  }
  std::uint32_t rest = 0;
  for (; i < count; ++i) rest ^= words[i];
  return rest ^ hn::GetLane(hn::SumOfLanes(d, hn::Xor(hn::Xor(a, b), hn::Xor(c, e))));
}

}  // namespace msa::cli::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msa::cli {

double product_loop(std::int64_t iterations) {
#ifdef MSA_CPU_TILES
  if (cpu::chosen_isa() == cpu::Isa::amx) return amx_product_loop(iterations);
  if (cpu::chosen_isa() == cpu::Isa::avx512_bf16) return avx512_bf16_product_loop(iterations);
#endif
  return MSA_CPU_CHOOSE(MultiplyAdds)(iterations);
}

std::uint32_t read_loop(const void* data, std::size_t bytes) {
  return MSA_CPU_CHOOSE(Read)(data, bytes);
}

}  // namespace msa::cli
#endif
