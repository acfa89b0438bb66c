// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "msa/types.h"

/// \file
/// Scalar conversions between the small float formats and f32/f64: the plain text that references,
/// tests and file readers use. Backends have vector versions that these are the oracle of.

namespace msa {

/// A binary float format of at most 16 bits.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  double largest;     // largest finite value
  std::uint32_t nan;  // bits of the positive NaN that encode() writes
  bool saturates;     // values past `largest` (infinities too) become ±largest, else ±inf
  bool has_infinity;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int min_exponent() const { return 1 - bias(); }
  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
};

inline constexpr FloatFormat bf16_format{8, 7, 0x1.FEp127, 0x7fc0, false, true};
inline constexpr FloatFormat f16_format{5, 10, 65504.0, 0x7e00, false, true};
inline constexpr FloatFormat e4m3_format{4, 3, 448.0, 0x7f, true, false};
inline constexpr FloatFormat e5m2_format{5, 2, 57344.0, 0x7e, true, true};

/// Rounds to nearest even, once, straight from f64 (no double rounding through f32).
inline std::uint32_t encode(const FloatFormat& f, double x) {
  const std::uint32_t sign = std::signbit(x) ? 1u << (f.bits() - 1) : 0u;
  if (std::isnan(x)) return sign | f.nan;
  const std::uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  double a = std::fabs(x);
  if (std::isinf(a) && !f.saturates) return sign | infinity;
  if (a > f.largest && f.saturates) a = f.largest;
  if (a == 0) return sign;
  int exponent = std::max(std::ilogb(a), f.min_exponent());
  double steps = std::nearbyint(std::ldexp(a, f.mantissa_bits - exponent));
  if (steps >= std::ldexp(1.0, f.mantissa_bits + 1)) {
    steps /= 2;
    ++exponent;
  }
  const auto s = static_cast<std::uint32_t>(steps);
  const std::uint32_t one = 1u << f.mantissa_bits;
  if (s < one) return sign | s;  // zero or subnormal
  if (std::ldexp(steps, exponent - f.mantissa_bits) > f.largest) return sign | infinity;
  return sign | ((static_cast<std::uint32_t>(exponent + f.bias()) << f.mantissa_bits) + (s - one));
}

/// Exact.
inline double decode(const FloatFormat& f, std::uint32_t bits) {
  const double sign = (bits >> (f.bits() - 1)) & 1 ? -1.0 : 1.0;
  const std::uint32_t exponent = (bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
  const std::uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const bool top = exponent == (1u << f.exponent_bits) - 1;
  if (top && f.has_infinity) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (top && !f.has_infinity && mantissa == (1u << f.mantissa_bits) - 1) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, f.min_exponent() - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << f.mantissa_bits),
                           static_cast<int>(exponent) - f.bias() - f.mantissa_bits);
}

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Round to nearest even; NaN stays NaN.
inline std::uint16_t float_to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>((u >> 16) | 0x40);
  return static_cast<std::uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/// The format of a small float type; bf16's for anything else.
constexpr const FloatFormat& format_of(DType type) {
  switch (type) {
    case DType::f16:
      return f16_format;
    case DType::e4m3:
      return e4m3_format;
    case DType::e5m2:
      return e5m2_format;
    default:
      return bf16_format;
  }
}

constexpr bool is_fp8(DType type) { return type == DType::e4m3 || type == DType::e5m2; }

/// Element `index` of a float tensor's memory, exactly.
inline double load(DType type, const void* data, std::int64_t index) {
  switch (size_of(type)) {
    case 4: {
      float x;
      std::memcpy(&x, static_cast<const char*>(data) + index * 4, 4);
      return x;
    }
    case 2: {
      std::uint16_t u;
      std::memcpy(&u, static_cast<const char*>(data) + index * 2, 2);
      return type == DType::bf16 ? bf16_to_float(u) : decode(f16_format, u);
    }
    default:
      return decode(format_of(type), static_cast<const std::uint8_t*>(data)[index]);
  }
}

/// Rounds `x` to the type, once, and stores it.
inline void store(DType type, void* data, std::int64_t index, double x) {
  switch (size_of(type)) {
    case 4: {
      const auto f = static_cast<float>(x);
      std::memcpy(static_cast<char*>(data) + index * 4, &f, 4);
      return;
    }
    case 2: {
      const auto u = static_cast<std::uint16_t>(encode(format_of(type), x));
      std::memcpy(static_cast<char*>(data) + index * 2, &u, 2);
      return;
    }
    default:
      static_cast<std::uint8_t*>(data)[index] =
          static_cast<std::uint8_t>(encode(format_of(type), x));
  }
}

/// `x` rounded to the type and back.
inline double round_to(DType type, double x) {
  if (type == DType::f32) return static_cast<float>(x);
  return decode(format_of(type), encode(format_of(type), x));
}

}  // namespace msa
