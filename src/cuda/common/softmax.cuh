// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

/// \file
/// Numbers of a running softmax of base 2.

namespace msa::cuda {

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

/// Within one unit in the last place, without the branch of a division. Sums are 0, about 1
/// (the largest weight's) or more, or not finite.
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

/// The natural logarithm of a row's sum of exponentials.
__device__ inline float lse_of(const Stats& stats) {
  const float log2_sum = stats.y == 0 ? -INFINITY : __fadd_rn(stats.x, log2_fast(stats.y));
  return __fmul_rn(log2_sum, 0.69314718055994530942f);  // ln 2
}

}  // namespace msa::cuda
