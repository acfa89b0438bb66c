// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cli/place.h"
#include "msa/types.h"

/// \file
/// Values of benchmark inputs.

namespace msa::cli {

/// Fills `elements` elements with values of unit variance, the same for the same seed. Values
/// repeat after about a megabyte at a seeded phase: distinct enough for softmax and top-k, and as
/// fast as copying.
void fill_normal(DType type, PlacedBuffer& memory, Place& place, std::int64_t elements,
                 std::uint64_t seed);

/// Memory of `elements` such values.
PlacedBuffer normal_memory(Place& place, DType type, std::int64_t elements, std::uint64_t seed);

}  // namespace msa::cli
