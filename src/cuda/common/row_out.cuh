// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/convert.cuh"
#include "cuda/common/ptx/operand.h"
#include "cuda/common/softmax.cuh"

/// \file
/// From f32 to 16 bits: operands of the products, and what becomes of a row's sums.

namespace msa::cuda {

/// Two numbers of the product type, each rounded once: `first` in the low half.
template <ptx::Operand type>
__device__ inline std::uint32_t pack(float first, float second) {
  std::uint32_t bits;
  if constexpr (type == ptx::Operand::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  }
  return bits;
}

/// Two packed numbers times 0: zeros, or NaN.
template <ptx::Operand type>
__device__ inline std::uint32_t times_zero(std::uint32_t two) {
  std::uint32_t bits;
  if constexpr (type == ptx::Operand::bf16) {
    asm("fma.rn.bf16x2 %0, %1, %2, %2;" : "=r"(bits) : "r"(two), "r"(0));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %2;" : "=r"(bits) : "r"(two), "r"(0));
  }
  return bits;
}

/// O / sum · v_scale; 0 without a key.
struct Normalize {
  __device__ Normalize(const Stats& stats, float v_scale)
      : empty(stats.y == 0), inverse(reciprocal_fast(stats.y)), v_scale(v_scale) {}
  /// Adding 0 leaves one sign of zero.
  __device__ float operator()(float o) const {
    return empty ? 0.0f : __fadd_rn(__fmul_rn(__fmul_rn(o, inverse), v_scale), 0.0f);
  }

  bool empty;
  float inverse, v_scale;
};

/// Two elements of out, `first` in the low half. P is rounded and its sum is not, so that the
/// quotient may pass the largest V by a little; out's type may end there.
__device__ inline std::uint32_t pack_out(bool out_is_f16, float first, float second) {
  const float most = largest_of(out_is_f16);
  first = clamp_to_largest(first, most);
  second = clamp_to_largest(second, most);
  return out_is_f16 ? pack<ptx::Operand::f16>(first, second)
                    : pack<ptx::Operand::bf16>(first, second);
}

/// Eight neighbouring elements of out; `aligned`: `to` is a multiple of 16 bytes.
__device__ inline void store_eight(std::uint16_t* to, const uint4& bits, bool aligned) {
  if (aligned) {
    *reinterpret_cast<uint4*>(to) = bits;
    return;
  }
  const std::uint32_t words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e] = static_cast<std::uint16_t>(words[e / 2] >> e % 2 * 16);
}

}  // namespace msa::cuda
