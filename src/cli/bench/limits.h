// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// \file
/// What the machine can do, measured in the same run as the operators.

namespace msa::cli {

struct Limits {
  double flops = 0;      ///< f32 operations a second: multiply-adds on registers, all threads
  double bandwidth = 0;  ///< bytes a second: random 64 KB pages of the pool, all threads
};

/// Measures both with the library's threads and the chosen instruction set. The pool must be
/// written already (untouched memory is one shared zero page).
Limits measure_limits(const void* pool, std::size_t bytes);

/// Seconds that a call of this much work needs at best: the slower of the two limits.
double best_seconds(const Limits& limits, double flops, double bytes);
/// True where that is the arithmetic.
bool compute_bound(const Limits& limits, double flops, double bytes);

}  // namespace msa::cli
