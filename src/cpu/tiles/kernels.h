// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cpu/tiles/types.h"

/// \file
/// Which engine multiplies tiles.

namespace msa::cpu::tiles {

#ifdef MSA_CPU_TILES
inline constexpr bool built = true;
#else
inline constexpr bool built = false;
#endif

/// The engine of the chosen instruction set; null where it has none.
const Kernels* kernels();

}  // namespace msa::cpu::tiles
