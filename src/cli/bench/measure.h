// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "common/place.h"

/// \file
/// Timing of repeated calls.

namespace msa::cli {

/// Times of single calls, in seconds.
struct Timing {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  std::int64_t calls = 0;
};

/// How long to measure.
struct Effort {
  double min_seconds = 1;
  std::int64_t min_calls = 5;
};

/// Runs call(0) once to warm up, then call(1), call(2), … one timing each, until both bounds of
/// `effort` are met.
Timing measure(const std::function<void(std::int64_t)>& call, const Effort& effort);

/// On a device: records call(0), call(1), … of all `sets`, at least twenty, and takes each time
/// from a run of all of them, after one to warm up.
Timing measure_recorded(Place& place, const std::function<void(std::int64_t)>& call,
                        std::int64_t sets, const Effort& effort);

}  // namespace msa::cli
