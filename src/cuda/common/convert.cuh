// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#include "msa/types.h"

/// \file
/// Element types in device code: exact reads, and stores that round to nearest even once. The plain
/// text of common/numeric.h is the oracle of all of it.

namespace msa::cuda {

__device__ inline float bf16_to_f32(std::uint32_t bits) { return __uint_as_float(bits << 16); }

__device__ inline std::uint32_t f32_to_bf16(float x) {
  const std::uint32_t u = __float_as_uint(x);
  if (x != x) return (u >> 16) | 0x40;
  return (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}

__device__ inline float f16_to_f32(std::uint32_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<std::uint16_t>(bits)));
  return x;
}

__device__ inline std::uint32_t f32_to_f16(float x) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

/// The byte's sign under f32's and its 7 other bits under f32's lowest exponent and highest
/// mantissa bits make its value times 2^-120; NaN alone becomes ±480.
__device__ inline float e4m3_to_f32(std::uint32_t byte) {
  const std::uint32_t bits = (byte & 0x80) << 24 | (byte & 0x7f) << 20;
  const float x = __uint_as_float(bits) * 0x1p120f;
  return fabsf(x) == 480.0f ? __uint_as_float(0x7fc00000) : x;
}

/// The upper half of an f16.
__device__ inline float e5m2_to_f32(std::uint32_t byte) { return f16_to_f32(byte << 8); }

/// A saturating fp8 type: `mantissa` bits, smallest exponent and largest value of normal numbers.
template <int mantissa, int min_exponent>
__device__ inline std::uint32_t f32_to_fp8(float x, float largest, std::uint32_t nan) {
  const std::uint32_t u = __float_as_uint(x);
  const std::uint32_t sign = u >> 31 << 7;
  if (x != x) return sign | nan;
  const float a = fminf(fabsf(x), largest);
  const int exponent =
      max(static_cast<int>(__float_as_uint(a) >> 23) - 127, min_exponent);  // 0 at f32 subnormals
  // Steps of the type at this exponent; a carry into the next exponent is the next code too.
  const float steps = rintf(a * __uint_as_float((127 + mantissa - exponent) << 23));
  return sign | (static_cast<std::uint32_t>((exponent - min_exponent) << mantissa) +
                 static_cast<std::uint32_t>(steps));
}

__device__ inline std::uint32_t f32_to_e4m3(float x) { return f32_to_fp8<3, -6>(x, 448.0f, 0x7f); }
__device__ inline std::uint32_t f32_to_e5m2(float x) {
  return f32_to_fp8<2, -14>(x, 57344.0f, 0x7e);
}

/// `bits` of one element as f32.
template <DType type>
__device__ inline float to_f32(std::uint32_t bits) {
  if constexpr (type == DType::bf16) return bf16_to_f32(bits);
  if constexpr (type == DType::f16) return f16_to_f32(bits);
  if constexpr (type == DType::e4m3) return e4m3_to_f32(bits);
  if constexpr (type == DType::e5m2) return e5m2_to_f32(bits);
}

/// Element `index` of memory of a known type.
template <DType type>
__device__ inline float load(const void* data, std::int64_t index) {
  if constexpr (type == DType::f32) return static_cast<const float*>(data)[index];
  if constexpr (size_of(type) == 2) {
    return to_f32<type>(static_cast<const std::uint16_t*>(data)[index]);
  }
  if constexpr (size_of(type) == 1) {
    return to_f32<type>(static_cast<const std::uint8_t*>(data)[index]);
  }
}

/// Element `index` of a float tensor's memory.
__device__ inline float load(DType type, const void* data, std::int64_t index) {
  switch (type) {
    case DType::bf16:
      return load<DType::bf16>(data, index);
    case DType::f16:
      return load<DType::f16>(data, index);
    case DType::e4m3:
      return load<DType::e4m3>(data, index);
    case DType::e5m2:
      return load<DType::e5m2>(data, index);
    default:
      return load<DType::f32>(data, index);
  }
}

/// Rounds to the type, once, and stores.
__device__ inline void store(DType type, void* data, std::int64_t index, float x) {
  switch (type) {
    case DType::bf16:
      static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(f32_to_bf16(x));
      break;
    case DType::f16:
      static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(f32_to_f16(x));
      break;
    case DType::e4m3:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(f32_to_e4m3(x));
      break;
    case DType::e5m2:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(f32_to_e5m2(x));
      break;
    default:
      static_cast<float*>(data)[index] = x;
  }
}

/// The largest number of f16, or of bf16.
__device__ inline float largest_of(bool f16) { return f16 ? 65504.0f : 0x1.FEp127f; }

/// Weights are rounded and their sum is not, so that a result may pass the largest value by 2^-8 or
/// so: past ±`most` by no more than 2^-7 of it, it becomes that. What lies beyond becomes infinite
/// where it is rounded; NaN stays.
__device__ inline float clamp_to_largest(float x, float most) {
  const bool near = fabsf(x) <= fminf(most * (1 + 0x1p-7f), FLT_MAX);
  return near ? fminf(fmaxf(x, -most), most) : x;
}

/// `x` rounded to bf16 or f16, and back.
template <DType type>
__device__ inline float round_to(float x) {
  if constexpr (type == DType::f16) return f16_to_f32(f32_to_f16(x));
  if constexpr (type == DType::bf16) return bf16_to_f32(f32_to_bf16(x));
}

}  // namespace msa::cuda
