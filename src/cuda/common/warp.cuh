// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file
/// Reductions and sums over the 32 lanes of a warp, in one fixed order.

namespace msa::cuda {

inline constexpr int warp_size = 32;

/// combine() of all lanes' values, the same in every lane.
template <class T, class Combine>
__device__ inline T warp_reduce(T x, Combine combine) {
  for (int lanes = warp_size / 2; lanes > 0; lanes /= 2) {
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  }
  return x;
}

template <class T>
__device__ inline T warp_sum(T x) {
  return warp_reduce(x, [](T a, T b) { return a + b; });
}

/// The sum of the values of this lane and those before it.
template <class T>
__device__ inline T warp_prefix(T x) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
#pragma unroll
  for (int lanes = 1; lanes < warp_size; lanes *= 2) {
    const T before = __shfl_up_sync(0xffffffffu, x, lanes);
    if (lane >= lanes) x += before;
  }
  return x;
}

/// The largest; NaN does not count.
__device__ inline float warp_max(float x) {
  return warp_reduce(x, [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace msa::cuda
