// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/bench/cases.h"
#include "cli/bench/limits.h"
#include "cli/bench/measure.h"
#include "cli/io/workload.h"
#include "cli/output.h"

/// \file
/// Results of `msa bench` as table, CSV and JSON, and reports read back as baselines.

namespace msa::cli {

/// One case on one backend.
struct CaseResult {
  Workload workload;
  std::string backend;
  std::string device = "cpu";
  std::string isa;          ///< of the CPU backend
  std::string unsupported;  ///< why the backend does not serve the case; then nothing was measured
  Timing timing;
  Work work;
  double baseline = 0;  ///< median seconds of the baseline; 0 = it has no such case

  double gflops() const { return work.flops / timing.median * 1e-9; }
  double gbps() const { return work.bytes / timing.median * 1e-9; }
  double percent(const Limits& limits) const;
  bool on_device() const { return device != "cpu"; }
  /// Baseline time over time: above 1 this run is faster.
  double speedup() const { return baseline / timing.median; }
};

/// A device's line has smaller times and larger rates.
void print_header(const Console& console, bool on_device, bool with_baseline);
void print_result(const Console& console, const CaseResult& result, const Limits& limits,
                  bool with_baseline);

std::string to_csv(const std::vector<CaseResult>& results, const Limits& limits);
Json to_json(const CaseResult& result, const Limits& limits);

/// The command that measures one workload alone.
std::string reproducing_command(const Workload& workload);

/// Median seconds by label(workload) of an earlier JSON report.
/// \throws Error (io) naming the file and what is wrong with it.
std::map<std::string, double> read_baseline(const std::string& path);

}  // namespace msa::cli
