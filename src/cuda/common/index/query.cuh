// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cmath>

#include "cuda/common/index/params.h"
#include "cuda/common/index/plan.h"
#include "cuda/common/query_row.cuh"

/// \file
/// Index queries from memory, on their way to operands of the products. 16 lanes look after a
/// column, eight neighbouring elements each.

namespace msa::cuda {

/// Elements 8 · `lane` … + 7 of a column of the tile, as they are.
__device__ inline uint4 load_index_query(const ScoreCall& p, const Segment& s, int column,
                                         int lane) {
  const int row = row_of(column, p.head_factor);
  const char* from = p.q + (s.first_token + row) * p.q_token + (column - row * p.heads) * p.q_head;
  if (p.q_type != DType::e4m3) {
    return load_query(reinterpret_cast<const std::uint16_t*>(from) + 8 * lane, p.q_aligned);
  }
  from += 8 * lane;
  if (p.q_aligned) {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    return {two.x, two.y, 0, 0};
  }
  std::uint32_t words[2] = {0, 0};
  for (int i = 0; i < 8; ++i) {
    words[i / 4] |= std::uint32_t{static_cast<unsigned char>(from[i])} << i % 4 * 8;
  }
  return {words[0], words[1], 0, 0};
}

/// Those elements as numbers.
__device__ inline void widen_index_query(DType type, const uint4& bits, float (&x)[8]) {
  const std::uint32_t words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t two = words[i / 2] >> i % 2 * 16 & 0xffff;
    if (type == DType::bf16) {
      x[i] = bf16_to_f32(two);
    } else if (type == DType::f16) {
      x[i] = f16_to_f32(two);
    } else {
      x[i] = e4m3_to_f32(words[i / 4] >> i % 4 * 8 & 0xff);
    }
  }
}

/// Scales eight elements so that f16 holds them, all of a warp together, and returns what their
/// scores are to be multiplied by, to f32's ends: bf16 rows reach from 2^-133 to 2^127. Only bf16
/// holds what f16 does not.
__device__ inline float scale_to_f16(DType type, float (&x)[8]) {
  const int exponent = type == DType::bf16 ? f16_exponent(row_maximum(x)) : 0;
  scale_row(exponent, x);
  return static_cast<float>(__hiloint2double((1023 - exponent) << 20, 0));
}

__device__ inline bool is_finite(float x) { return fabsf(x) <= FLT_MAX; }

/// What bf16 holds of an f16 number, cut off towards 0, or half of it where that is all: against an
/// infinite key or a product near f32's end no part of a number may be 0 or of another sign.
__device__ inline float upper_part(float x) {
  const float upper = __uint_as_float(__float_as_uint(x) & 0xffff0000);
  return !is_finite(x) ? x : upper == x ? 0.5f * x : upper;
}

}  // namespace msa::cuda
