// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/attend/call.h"

namespace msa::cuda::portable {

/// Whether all rows of K or V start at multiples of 16 bytes.
inline bool aligned(const HalfView& v) {
  return (reinterpret_cast<std::uintptr_t>(v.data) | static_cast<std::uintptr_t>(v.page) |
          static_cast<std::uintptr_t>(v.head) | static_cast<std::uintptr_t>(v.token)) %
             16 ==
         0;
}

}  // namespace msa::cuda::portable
