// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0

/// \file
/// Vector functions of softmax. Compiled once per instruction set, as convert-inl.h.

#include "cpu/convert-inl.h"

#if defined(MSA_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSA_CPU_MATH_INL_H_
#undef MSA_CPU_MATH_INL_H_
#else
#define MSA_CPU_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

/// 2^x for x ≤ 0, within 2 ulp; 0 below −125 (such weights vanish beside the row's largest, 1); 1
/// above 0, so that no caller's rounding can make a weight without meaning. NaN stays NaN where its
/// low 9 bits are 0, which holds for NaNs of 16-bit formats and of invalid operations.
HWY_INLINE VF exp2_nonpositive(VF x) {
  const F32 df;
  const U32 du;
  x = hn::IfThenZeroElse(hn::Gt(x, hn::Zero(df)), x);
  // Adding 1.5 · 2^23 leaves the nearest integer in the low mantissa bits.
  const VF shifter = hn::Set(df, 0x1.8p23f);
  const VF shifted = hn::Add(x, shifter);
  const VF f = hn::Sub(x, hn::Sub(shifted, shifter));  // in [−0.5, 0.5]
  // Minimax coefficients of Cephes' exp2f.
  VF p = hn::Set(df, 1.535336188319500e-4f);
  p = hn::MulAdd(p, f, hn::Set(df, 1.339887440266574e-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 9.618437357674640e-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 5.550332471162809e-2f));
  p = hn::MulAdd(p, f, hn::Set(df, 2.402264791363012e-1f));
  p = hn::MulAdd(p, f, hn::Set(df, 6.931472028550421e-1f));
  p = hn::MulAdd(p, f, hn::Set(df, 1.0f));
  const VU exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  const VF scaled = hn::BitCast(df, hn::Add(hn::BitCast(du, p), exponent));
  return hn::IfThenElse(hn::Lt(x, hn::Set(df, -125.0f)), hn::Zero(df), scaled);
}

/// Probabilities in [0, 1] rounded to the type that meets V. NaN may be lost: the row's sum, taken
/// of unrounded values, keeps it.
template <DType type>
HWY_INLINE VF round_probability(VF p) {
  const F32 df;
  if constexpr (type == DType::bf16) {
    const U32 du;
    const VU u = hn::BitCast(du, p);
    const VU odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
    const VU rounded = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu)));
    return hn::BitCast(df, hn::And(rounded, hn::Set(du, 0xffff0000u)));
  } else if constexpr (type == DType::f16 && HWY_TARGET != HWY_EMU128) {
    const hn::Rebind<hwy::float16_t, F32> d16;
    return hn::PromoteTo(df, hn::DemoteTo(d16, p));
  } else {
    return round_f32<type>(p);
  }
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
