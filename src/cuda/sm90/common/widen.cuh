// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/types.h"

/// \file
/// 8-bit elements as f16, which holds each of their values.

namespace msa::cuda::sm90 {

/// Bytes 0 and 1, then 2 and 3, as pairs of f16.
template <DType type>
__device__ inline void widen(std::uint32_t bytes, std::uint32_t& low, std::uint32_t& high) {
  if constexpr (type == DType::e4m3) {
    asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; "
        "cvt.rn.f16x2.e4m3x2 %1, b;}"
        : "=r"(low), "=r"(high)
        : "r"(bytes));
  } else {
    // e5m2 is the upper half of an f16.
    low = __byte_perm(bytes, 0, 0x1404);
    high = __byte_perm(bytes, 0, 0x3424);
  }
}

}  // namespace msa::cuda::sm90
