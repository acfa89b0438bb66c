// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda/common/convert.cuh"
#include "cuda/common/row_out.cuh"

/// \file
/// Query heads as operands of the logits. 16 lanes look after a head, eight neighbouring elements
/// each.

namespace msa::cuda {

inline constexpr int query_lanes = 16;

/// Byte offset of element (column, k) of a [n][128] operand of 16-bit elements: two halves of k,
/// each with rows of 128 bytes whose 16-byte chunks are swizzled by the row.
template <int n>
__device__ inline int operand_offset(int column, int k) {
  const int chunk = k % 64 / 8;
  return k / 64 * (n * 128) + column * 128 + ((chunk ^ column % 8) * 16) + k % 8 * 2;
}

/// The eight elements at `from`; `aligned`: it is a multiple of 16 bytes.
__device__ inline uint4 load_query(const std::uint16_t* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const uint4*>(from);
  const auto two = [&](int e) { return from[e] | std::uint32_t{from[e + 1]} << 16; };
  return {two(0), two(2), two(4), two(6)};
}

/// What logits are multiplied by, base 2.
__device__ inline double logit_scale(float softmax_scale, float k_scale) {
  return static_cast<double>(softmax_scale) * k_scale * 1.4426950408889634074;  // log2 e
}

/// The largest finite magnitude of a row.
__device__ inline float row_maximum(const float (&x)[8]) {
  float largest = 0;
  for (float element : x) {
    if (fabsf(element) <= FLT_MAX) largest = fmaxf(largest, fabsf(element));
  }
  for (int lane = 1; lane < query_lanes; lane *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
  }
  return largest;
}
__device__ inline int floor_log2(float x) {
  const bool tiny = x < 0x1p-100f;
  const float normal = tiny ? x * 0x1p100f : x;
  return static_cast<int>(__float_as_uint(normal) >> 23) - 127 - (tiny ? 100 : 0);
}

/// The power of two that takes a row's largest number to 2^14 or more, below 2^15: no element
/// overflows f16, and only those below 2^-31 of the largest round.
__device__ inline int f16_exponent(float largest) {
  return largest == 0 ? 0 : 14 - floor_log2(largest);
}

/// What is left of the scale for the row's logits, f32's largest number where it is more: a row
/// of zeros must not meet an infinite factor. Others' logits overflow then, or come out too
/// small: f16 products of queries above 2^86 with tiny keys, at a scale above 2^41.
__device__ inline float factor_of(double scale, int exponent) {
  const double left = scale * __hiloint2double((1023 - exponent) << 20, 0);
  const bool too_large = fabs(left) > FLT_MAX && fabs(scale) <= DBL_MAX;
  return too_large ? copysignf(FLT_MAX, static_cast<float>(left)) : static_cast<float>(left);
}

/// A logit scale that f32 does not hold, or hardly.
__device__ inline bool extreme(double scale) {
  const double magnitude = fabs(scale);
  return magnitude <= DBL_MAX && magnitude > 0 && !(magnitude > 0x1p-100 && magnitude < 0x1p100);
}
/// The part of it that a bf16 row takes over, short of overflowing.
__device__ inline int scale_exponent(double scale, float largest) {
  constexpr int kept = 64;
  const int whole = ilogb(scale);
  if (whole < 0) return max(whole + kept, -kept);
  return largest == 0 ? 0 : min(whole - kept, max(0, 126 - floor_log2(largest)));
}

__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<unsigned>(127 + exponent) << 23);
}
__device__ inline void scale_row(int exponent, float (&x)[8]) {
  const int half = exponent / 2;  // in two steps, as 2^exponent may be no f32
  const float first = power_of_two(half), second = power_of_two(exponent - half);
  for (float& element : x) element = element * first * second;
}

/// A lane's elements as products of a type take them, and what is left to multiply the head's
/// logits by. All of a warp.
template <ptx::Operand product>
struct QueryRow {
  __device__ QueryRow(const uint4& loaded, bool is_f16, double scale) {
    const std::uint32_t words[] = {loaded.x, loaded.y, loaded.z, loaded.w};
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t element = words[i / 2] >> i % 2 * 16 & 0xffff;
      x[i] = is_f16 ? f16_to_f32(element) : bf16_to_f32(element);
    }
    int exponent = 0;
    if constexpr (product == ptx::Operand::f16) {
      exponent = f16_exponent(row_maximum(x));
    } else if (extreme(scale)) {
      exponent = scale_exponent(scale, row_maximum(x));
    }
    scale_row(exponent, x);
    factor = factor_of(scale, exponent);
    bits = {pack<product>(x[0], x[1]), pack<product>(x[2], x[3]), pack<product>(x[4], x[5]),
            pack<product>(x[6], x[7])};
  }

  uint4 bits;
  float factor;
};

}  // namespace msa::cuda
