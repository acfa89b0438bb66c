// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

/// \file
/// Folding two partial results of a row into one: the step of the tree that fixes a row's bits. It
/// is spelt with explicit roundings, as one CTA and the CTAs of a cluster must agree.

namespace msa::cuda::sm90::decode {

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// One instruction as well: the library's log2f is contracted with its surroundings, differently in
/// each place, which once cost LSE a bit between cluster sizes. Off by at most 2^-22,
/// relatively above 2.
__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Within one unit in the last place, without the branch of a division. Sums are 0, at least 1 (the
/// largest weight's) or not finite.
__device__ inline float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// What is subtracted from logits of this maximum: −inf (no key, or −inf logits alone) shifts
/// nothing.
__device__ inline float shift_of(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

/// A row's running softmax: x the largest logit (base 2), y the sum of exponentials over it.
using Stats = float2;

__device__ inline Stats no_keys() { return {-INFINITY, 0.0f}; }

/// Two runs of pages of one column: a comes before b. A run without a key of this column weighs
/// nothing, and the result of any run folded onto none is that run; of a sum that is NaN the result
/// is NaN.
struct Fold {
  __device__ Fold(const Stats& a, const Stats& b) {
    const float maximum = fmaxf(a.x, b.x);
    const float shift = shift_of(maximum);
    weight_a = exp2_fast(a.x - shift);
    weight_b = exp2_fast(b.x - shift);
    stats = {maximum, operator()(a.y, b.y)};
  }
  /// The same for an element of O.
  __device__ float operator()(float a, float b) const {
    return __fmaf_rn(b, weight_b, __fmul_rn(a, weight_a));
  }

  float weight_a, weight_b;
  Stats stats;
};

}  // namespace msa::cuda::sm90::decode
