// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cpu/index_kernel.h"

/// \file
/// Scores by tiles, for queries that bf16 holds exactly; others take the vector code.

namespace msa::cpu {

/// Floats of scratch memory for tiles of up to `rows` rows.
std::int64_t tile_scratch_floats(std::int64_t rows);

ScoreKernels tile_score_kernels();

}  // namespace msa::cpu
