// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/tensor.h"

namespace msa::cuda {

/// Whether the rows of [T, heads, 128] start at multiples of 16 bytes. The stride of a dimension of
/// one index does not matter.
inline bool aligned_rows(const ConstTensor& t) {
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  const auto aligned = [&](int dimension) {
    return t.shape[dimension] == 1 || t.stride[dimension] * size % 16 == 0;
  };
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && aligned(0) && aligned(1);
}

}  // namespace msa::cuda
