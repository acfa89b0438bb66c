// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/write_cache_kernel.h"

#include <cmath>
#include <cstring>

#include "cpu/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/write_cache_kernel.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/convert-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));

/// Σ x² of a head. In f64: the squares of large bf16 and f16 elements overflow f32.
double sum_of_squares(const float* x) {
  const hn::ScalableTag<double> df;
  const hn::Rebind<float, decltype(df)> dx;
  constexpr auto step = static_cast<std::int64_t>(hn::MaxLanes(df));
  // Four chains, or the additions' latency would be most of a head's time.
  constexpr int chains = 4;
  hn::Vec<decltype(df)> sum[chains] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  for (std::int64_t i = 0; i < head_dim; i += chains * step) {
    for (int c = 0; c < chains; ++c) {
      const auto y = hn::PromoteTo(df, hn::LoadU(dx, x + i + c * step));
      sum[c] = hn::MulAdd(y, y, sum[c]);
    }
  }
  return hn::GetLane(hn::SumOfLanes(df, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

/// Factors of the norm: x · first is in f32's comfortable range, and second brings it to
/// x / sqrt(mean x² + eps).
struct NormFactors {
  NormFactors(double squares, double eps) {
    const double inverse = 1 / std::sqrt(squares / head_dim + eps);
    const bool tiny = inverse > 0x1p100;
    first = tiny ? 0x1p100f : 1.0f;
    second = static_cast<float>(tiny ? inverse * 0x1p-100 : inverse);
  }
  float first;
  float second;
};

template <DType to>
HWY_INLINE void store_scaled(VF x, float scale, Storage<to>* p) {
  const F32 df;
  store_f32<to>(scale == 1.0f ? x : hn::Div(x, hn::Set(df, scale)), p);
}

template <DType from, DType to>
void write_normed(const HeadRule& rule, const Storage<from>* x, const float* cos_sin,
                  Storage<to>* out) {
  const F32 df;
  alignas(64) float head[head_dim];
  load_row<from>(x, head);
  const NormFactors factors(sum_of_squares(head), rule.eps);
  const VF first = hn::Set(df, factors.first), second = hn::Set(df, factors.second);
  const auto normed = [&](std::int64_t i) {
    const VF unit = hn::Mul(hn::Mul(hn::Load(df, head + i), first), second);
    return hn::Mul(unit, hn::LoadU(df, rule.weight + i));
  };
  for (std::int64_t i = 0; i < half_rotary; i += lanes) {
    const VF a = normed(i), b = normed(i + half_rotary);
    const VF cosine = hn::LoadU(df, cos_sin + i), sine = hn::LoadU(df, cos_sin + half_rotary + i);
    store_scaled<to>(hn::Sub(hn::Mul(a, cosine), hn::Mul(b, sine)), rule.scale, out + i);
    store_scaled<to>(hn::Add(hn::Mul(b, cosine), hn::Mul(a, sine)), rule.scale,
                     out + half_rotary + i);
  }
  for (std::int64_t i = 2 * half_rotary; i < head_dim; i += lanes) {
    store_scaled<to>(normed(i), rule.scale, out + i);
  }
}

template <DType from, DType to>
void write_plain(const HeadRule& rule, const Storage<from>* x, Storage<to>* out) {
  if constexpr (from == to) {
    if (rule.scale == 1.0f) {  // every bit pattern as it is
      std::memcpy(out, x, head_dim * sizeof(Storage<to>));
      return;
    }
  }
  for (std::int64_t i = 0; i < head_dim; i += lanes) {
    store_scaled<to>(load_f32<from>(x + i), rule.scale, out + i);
  }
}

template <DType from>
void write_from(const HeadRule& rule, const void* x, const float* cos_sin, void* out) {
  with_dtype(rule.to, [&](auto to) {
    if constexpr (to != DType::f32) {
      const auto* source = static_cast<const Storage<from>*>(x);
      auto* target = static_cast<Storage<to>*>(out);
      if (rule.weight != nullptr) {
        write_normed<from, to>(rule, source, cos_sin, target);
      } else {
        write_plain<from, to>(rule, source, target);
      }
    }
  });
}

void write_head(const HeadRule& rule, const void* x, const float* cos_sin, void* out) {
  if (rule.from == DType::bf16) {
    write_from<DType::bf16>(rule, x, cos_sin, out);
  } else {
    write_from<DType::f16>(rule, x, cos_sin, out);
  }
}

void load_floats(DType type, const void* from, std::int64_t n, float* to) {
  with_dtype(type, [&](auto t) {
    const auto* x = static_cast<const Storage<t>*>(from);
    for (std::int64_t i = 0; i < n; i += lanes) hn::StoreU(load_f32<t>(x + i), F32(), to + i);
  });
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msa::cpu {

WriteKernels write_kernels() { return {MSA_CPU_CHOOSE(load_floats), MSA_CPU_CHOOSE(write_head)}; }

}  // namespace msa::cpu
#endif  // HWY_ONCE
