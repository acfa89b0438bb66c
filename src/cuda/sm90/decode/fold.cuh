// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

/// \file
/// Folding two partial results of a row into one: the step of the tree that fixes a row's bits. It
/// is spelt with explicit roundings, as registers and shared memory of a cluster must agree.

namespace msa::cuda::sm90::decode {

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// What is subtracted from logits of this maximum: −inf (no key, or −inf logits alone) shifts
/// nothing.
__device__ inline float shift_of(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

/// A row's running softmax: x the largest logit (base 2), y the sum of exponentials over it.
using Stats = float2;

__device__ inline Stats no_keys() { return {-INFINITY, 0.0f}; }
/// Nothing was summed: O may hold anything. A sum of NaN logits alone has no maximum either, but is
/// no empty one.
__device__ inline bool is_empty(const Stats& s) { return s.x == -INFINITY && s.y == 0.0f; }

struct Fold {
  __device__ Fold(const Stats& a, const Stats& b) : has_a(!is_empty(a)), has_b(!is_empty(b)) {
    const float maximum = fmaxf(a.x, b.x);
    const float shift = shift_of(maximum);
    weight_a = exp2_fast(a.x - shift);
    weight_b = exp2_fast(b.x - shift);
    stats = {maximum, operator()(a.y, b.y)};
  }
  /// The same for an element of O.
  __device__ float operator()(float a, float b) const {
    const float left = has_a ? __fmul_rn(a, weight_a) : 0.0f;
    return has_b ? __fmaf_rn(b, weight_b, left) : left;
  }

  bool has_a, has_b;
  float weight_a, weight_b;
  Stats stats;
};

/// Two columns at once, as they lie in a thread's 16-byte cell of O: {column 0, column 1} of one
/// element of V, then of another.
struct PairFold {
  __device__ PairFold(const float4& a, const float4& b)
      : first({a.x, a.y}, {b.x, b.y}), second({a.z, a.w}, {b.z, b.w}) {}

  __device__ float4 operator()(const float4& a, const float4& b) const {
    return {first(a.x, b.x), second(a.y, b.y), first(a.z, b.z), second(a.w, b.w)};
  }
  __device__ float4 stats() const {
    return {first.stats.x, first.stats.y, second.stats.x, second.stats.y};
  }

  Fold first, second;
};

}  // namespace msa::cuda::sm90::decode
