// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/host_device.h"

/// \file
/// Divisions of the kernels' schedules, the same on host and device.

namespace msa::cuda {

/// Quotients of any i from 0 to 2^31 - 1 by one product: with 2^(shift - 31) >= size the rounded
/// up factor is off by too little to matter. A division on the device takes 0.1 µs.
struct Divisor {
  Divisor() = default;
  MSA_HOST_DEVICE constexpr explicit Divisor(std::uint32_t size) {
    while (std::uint64_t{1} << (shift - 31) < size) ++shift;
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + size - 1) / size);
  }
  MSA_HOST_DEVICE constexpr int quotient(int i) const {
    return static_cast<int>(static_cast<std::uint32_t>(i) * std::uint64_t{factor} >> shift);
  }

  std::uint32_t factor = 0;
  int shift = 31;
};

/// floor(i / size) by a product and a shift: exact for i below 1,024 and sizes of 1 to 64 (columns
/// by G, ids by topk).
inline constexpr int row_shift = 16;
MSA_HOST_DEVICE constexpr int row_factor(int size) { return (1 << row_shift) / size + 1; }
MSA_HOST_DEVICE constexpr int row_of(int i, int factor) { return i * factor >> row_shift; }

}  // namespace msa::cuda
