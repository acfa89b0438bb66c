// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/types.h"

/// \file
/// 8-bit elements as f16, which holds each of their values.

namespace msa::cuda {

/// Two e4m3 in the upper bytes of a word's halves, as f16, on devices before SM89, which have no
/// instruction for it.
__device__ inline std::uint32_t widen_e4m3_pair(std::uint32_t spread) {
  // The 7 lower bits from f16's lowest exponent bit on make the value times 2^-8, subnormal or not;
  // NaN alone becomes ±480.
  const std::uint32_t bits = (spread & 0x80008000) | (spread & 0x7f007f00) >> 1;
  std::uint32_t x;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(x) : "r"(bits), "r"(0x5c005c00));  // 2^8
  return x | (__vcmpeq2(x & 0x7fff7fff, 0x5f805f80) & 0x7fff7fff);
}

/// Bytes 0 and 1, then 2 and 3, as pairs of f16.
template <DType type>
__device__ inline void widen(std::uint32_t bytes, std::uint32_t& low, std::uint32_t& high) {
  if constexpr (type == DType::e4m3) {
#if __CUDA_ARCH__ >= 890
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; "
        "cvt.rn.f16x2.e4m3x2 %1, b;}"
        : "=r"(low), "=r"(high)
        : "r"(bytes));
#else
    low = widen_e4m3_pair(__byte_perm(bytes, 0, 0x1404));
    high = widen_e4m3_pair(__byte_perm(bytes, 0, 0x3424));
#endif
  } else {
    // e5m2 is the upper half of an f16.
    low = __byte_perm(bytes, 0, 0x1404);
    high = __byte_perm(bytes, 0, 0x3424);
  }
}

}  // namespace msa::cuda
