// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/tiles.h"

/// \file
/// Sizes of the prefill kernel's schedule: a tile's 128 rows of the products are 64 for each of two
/// warpgroups.

namespace msa::cuda::sm90::prefill {

inline constexpr int groups = 2;  // warpgroups
inline constexpr int group_rows = 64;
static_assert(tile_rows == groups * group_rows);

/// Ids of a tile: the lists must fit beside the ring.
inline constexpr int max_ids = 512;

}  // namespace msa::cuda::sm90::prefill
