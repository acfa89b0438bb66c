// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/numeric.h"
#include "msa/tensor.h"

/// \file
/// Strided reads of float tensors as f64. Small formats go through tables, or the oracle would
/// spend its time in ldexp.

namespace msa::reference {

/// All values of a small format, by their bits.
inline const std::vector<double>& values_of(DType type) {
  const auto build = [](const FloatFormat& f) {
    std::vector<double> values(std::size_t{1} << f.bits());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = decode(f, static_cast<std::uint32_t>(i));
    }
    return values;
  };
  static const std::vector<double> bf16 = build(bf16_format);
  static const std::vector<double> f16 = build(f16_format);
  static const std::vector<double> e4m3 = build(e4m3_format);
  static const std::vector<double> e5m2 = build(e5m2_format);
  switch (type) {
    case DType::f16:
      return f16;
    case DType::e4m3:
      return e4m3;
    case DType::e5m2:
      return e5m2;
    default:
      return bf16;
  }
}

/// Elements [offset, offset + n) of a float tensor's memory, `step` apart in `out`.
inline void load_row(const ConstTensor& t, std::int64_t offset, std::int64_t n, double* out,
                     std::int64_t step = 1) {
  if (t.dtype == DType::f32) {
    for (std::int64_t i = 0; i < n; ++i) out[i * step] = load(t.dtype, t.data, offset + i);
    return;
  }
  const double* values = values_of(t.dtype).data();
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t bits = 0;
    if (size_of(t.dtype) == 2) {
      std::memcpy(&bits, static_cast<const char*>(t.data) + (offset + i) * 2, 2);
    } else {
      bits = static_cast<const std::uint8_t*>(t.data)[offset + i];
    }
    out[i * step] = values[bits];
  }
}

/// A factor's value on the host.
inline double value_of(const Scale& scale) {
  return scale.tensor.given() ? load(DType::f32, scale.tensor.data, 0) : scale.value;
}

}  // namespace msa::reference
