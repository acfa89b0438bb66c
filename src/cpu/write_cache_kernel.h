// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/types.h"

/// \file
/// One head of one token on its way into a cache or a query buffer.

namespace msa::cpu {

/// Elements of a head that the rotation pairs with those `half_rotary` further.
inline constexpr std::int64_t half_rotary = 32;

/// What happens to all heads of one kind.
struct HeadRule {
  DType from = DType::bf16;       // bf16|f16
  DType to = DType::bf16;         // bf16|f16|e4m3|e5m2
  float scale = 1.0f;             // what is stored is divided by it
  const float* weight = nullptr;  // [128]: 1 + w of the norm; null: neither norm nor rotation
  double eps = 0;
};

struct WriteKernels {
  /// n elements of a float type as f32; n a multiple of 32.
  void (*load)(DType type, const void* from, std::int64_t n, float* to);
  /// 128 elements; cos_sin: [64], cos first.
  void (*write_head)(const HeadRule& rule, const void* from, const float* cos_sin, void* to);
};
/// For the chosen instruction set.
WriteKernels write_kernels();

}  // namespace msa::cpu
