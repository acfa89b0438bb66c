// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/cases.h"

/// \file
/// What the machine can do, measured in the same run as the operators.

namespace msa::cli {

struct Limits {
  /// Operations a second. CPU: the set's best products on registers (f32 multiply-adds, with amx
  /// and avx512_bf16 products of bf16), all threads; device: bf16 matrix products on registers.
  double flops = 0;
  /// Bytes a second. CPU: random 64 KB pages of the pool, all threads; device: the best of `rates`.
  double bandwidth = 0;
  std::vector<std::pair<std::string, double>> rates = {};  ///< a device's, by name, bytes a second
};

/// Measures with the library's threads and the chosen instruction set, or on the pools' device. The
/// main pool must be written already (untouched memory is one shared zero page).
Limits measure_limits(Pools& pools);

/// Seconds that a call of this much work needs at best: the slower of the two limits.
double best_seconds(const Limits& limits, double flops, double bytes);
/// True where that is the arithmetic.
bool compute_bound(const Limits& limits, double flops, double bytes);

}  // namespace msa::cli
