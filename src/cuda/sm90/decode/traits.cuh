// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/ptx/wgmma.cuh"
#include "cuda/common/row_out.cuh"
#include "cuda/common/widen.cuh"
#include "msa/types.h"

/// \file
/// What differs between the cache types: the type of the products, and how 8 bits become 16.

namespace msa::cuda::sm90::decode {

/// 16-bit caches: tiles are operands as they lie in shared memory.
struct WideCache {
  static constexpr bool widens = false;
  /// The element of V's row that lane group `g` of warp `w` has in tile `tile`, half `half`.
  __device__ static int element(int w, int g, int tile, int half) {
    return 64 * tile + 16 * w + g + 8 * half;
  }
};
struct Bf16Cache : WideCache {
  static constexpr ptx::Operand product = ptx::Operand::bf16;
};
struct F16Cache : WideCache {
  static constexpr ptx::Operand product = ptx::Operand::f16;
};

/// 8-bit caches: every value is exact in f16; registers hold the operand.
struct NarrowCache {
  static constexpr bool widens = true;
  static constexpr ptx::Operand product = ptx::Operand::f16;
  __device__ static int element(int w, int g, int tile, int half) {
    return 32 * w + 4 * g + 2 * tile + half;
  }
};
struct E4m3Cache : NarrowCache {
  static constexpr auto widen = cuda::widen<DType::e4m3>;
};
struct E5m2Cache : NarrowCache {
  static constexpr auto widen = cuda::widen<DType::e5m2>;
};

}  // namespace msa::cuda::sm90::decode
