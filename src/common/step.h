// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/tensor.h"

namespace msa {

/// Elements from an index of a dimension to the next; 0 where there is no next one, or no element
/// at all: strides that no element is found by may be any numbers, and no product with them fits.
inline std::int64_t step(const ConstTensor& t, int dim) {
  return t.shape[dim] > 1 && t.numel() > 0 ? t.stride[dim] : 0;
}

/// The same in bytes: a number for every view whose elements span at most 2^63 bytes.
inline std::int64_t step_bytes(const ConstTensor& t, int dim) {
  return step(t, dim) * static_cast<std::int64_t>(size_of(t.dtype));
}

}  // namespace msa
