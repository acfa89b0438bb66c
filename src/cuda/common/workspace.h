// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace msa::cuda {

/// The first multiple of `alignment` bytes in a workspace, which must be as much larger than T's.
template <class T>
T* aligned_to(std::uintptr_t alignment, void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return reinterpret_cast<T*>((address + alignment - 1) / alignment * alignment);
}

}  // namespace msa::cuda
