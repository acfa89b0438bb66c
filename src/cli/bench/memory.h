// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "msa/types.h"

/// \file
/// Memory of benchmark inputs.

namespace msa::cli {

/// Zeroed pages of their own, in huge pages where the system grants them.
class BenchMemory {
 public:
  explicit BenchMemory(std::size_t bytes = 0);
  BenchMemory(BenchMemory&& other) noexcept;
  BenchMemory& operator=(BenchMemory&& other) noexcept;
  ~BenchMemory();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Fills `elements` elements with values of unit variance, the same for the same seed. Values
/// repeat after about a megabyte at a seeded phase: distinct enough for softmax and top-k, and as
/// fast as copying.
void fill_normal(DType type, void* data, std::int64_t elements, std::uint64_t seed);

/// Memory of `elements` such values.
BenchMemory normal_memory(DType type, std::int64_t elements, std::uint64_t seed);

}  // namespace msa::cli
