// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/soak/lane.h"

/// \file
/// The soak: lanes on several host threads at once, until the time is over or a row is wrong.

namespace msa::soak {

struct SoakOptions {
  double seconds = 60;     ///< no step begins later
  std::int64_t rows = 0;   ///< enough of them, which the time must allow; 0 = as many as it does
  std::int64_t steps = 0;  ///< of each lane; 0 = what the time allows
  std::int64_t threads = 1;
  std::int64_t streams = 2;         ///< of each thread: its lanes
  std::int64_t lane = -1;           ///< the only lane that runs; −1 = all
  std::int64_t rows_per_step = 64;  ///< most rows that a step is checked by
  std::int64_t fault_step = -1;     ///< of the first lane: a row is spoiled there
  std::uint64_t seed = 1;
};

struct SoakReport {
  SoakOptions options;
  std::string device;                 ///< "cpu", "cuda:0"
  std::string machine;                ///< "NVIDIA H200 (cuda:0)"
  std::vector<std::string> backends;  ///< that served calls
  double seconds = 0;
  LaneStats lanes;     ///< of all
  std::string wrong;   ///< the first that was found, in words; "" = nothing
  std::string repeat;  ///< the command that finds it again

  bool passed() const {
    return wrong.empty() && lanes.rows >= std::max<std::int64_t>(options.rows, 1);
  }
};

/// Every lane gets a place of its own. `on_rows`, which may be empty, sees the rows checked so far
/// now and then. A call that throws is wrong, too.
SoakReport run_soak(const SoakOptions& options,
                    const std::function<std::unique_ptr<Place>()>& make_place,
                    const std::function<void(std::int64_t rows)>& on_rows);

void print_report(const cli::Console& console, const SoakReport& report);
/// `environment` becomes the report's "environment".
cli::Json report_json(const SoakReport& report, cli::Json environment);

}  // namespace msa::soak
