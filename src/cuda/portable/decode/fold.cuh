// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/softmax.cuh"

/// \file
/// Folding two partial results of a row into one: the step of the tree that fixes a row's bits. It
/// is spelt with explicit roundings, as the kernel and the one that ends a split must agree.

namespace msa::cuda::portable::decode {

/// Two runs of keys of one row: a comes before b. A run without a key weighs nothing; of a sum that
/// is NaN the result is NaN.
struct Weights {
  /// An element of O.
  __device__ float operator()(float a, float b) const {
    return __fmaf_rn(b, weight_b, __fmul_rn(a, weight_a));
  }
  float weight_a, weight_b;
};
struct Fold : Weights {
  __device__ Fold(const Stats& a, const Stats& b) {
    const float maximum = fmaxf(a.x, b.x);
    const float shift = shift_of(maximum);
    weight_a = exp2_fast(a.x - shift);
    weight_b = exp2_fast(b.x - shift);
    stats = {maximum, operator()(a.y, b.y)};
  }
  Stats stats;
};

}  // namespace msa::cuda::portable::decode
