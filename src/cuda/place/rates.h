// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/place.h"

/// \file
/// What a CUDA device can do, by kernels of this folder in graphs: a copy call inside a graph is
/// slower than a kernel.

namespace msa::cuda {

struct MemoryRate {
  std::string name;             ///< "copy", "gather_64k", …
  double bytes_per_second = 0;  ///< read and written
};

struct DeviceRates {
  std::vector<MemoryRate> memory;
  double matmul_flops = 0;  ///< a second: mma.sync on registers, bf16 with f32 sums
};

/// Measures a copy, random pages by plain loads and, from compute capability 9.0 on, random tiles
/// of 64, 32 and 16 KB through tensor maps. `pool`: memory of the place, of at least 64 MB and far
/// larger than its L2 cache; its second half is overwritten with the first.
DeviceRates measure_rates(Place& place, void* pool, std::size_t bytes);

}  // namespace msa::cuda
