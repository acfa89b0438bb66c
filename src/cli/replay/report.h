// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/replay/replay.h"

/// \file
/// What a replay says at its end: a table, JSON, the command that repeats it.

namespace msa::replay {

/// Steps of one kind: only prompt chunks, only decode rows, or both.
struct KindSummary {
  std::string name;
  std::int64_t steps = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  double seconds = 0;                ///< of serving, harness aside
  double p50 = 0, p90 = 0, p99 = 0;  ///< s a step

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(prefill_tokens + decode_tokens) / seconds : 0;
  }
};

/// Prefill, mixed, decode, all.
std::array<KindSummary, 4> summarize(const std::vector<StepRecord>& steps);

/// The smallest sample that at least `share` of all samples do not exceed; 0 without samples.
double percentile(std::vector<double> samples, double share);

/// One operator in steps of decode rows alone.
struct DecodeRate {
  const char* name;
  double seconds = 0;
  double bytes = 0;  ///< that it must read
  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};
/// index_blocks, attend.
std::array<DecodeRate, 2> decode_rates(const std::vector<StepRecord>& steps);

/// Seconds by phase over all steps.
PhaseTimes total_times(const std::vector<StepRecord>& steps);

/// `msa replay TRACE --requests N --seed S …`: gives the same digest on the same backend.
std::string reproducing_command(const std::string& trace, const ReplayOptions& options,
                                const std::string& device);

/// The command's exit code: 1 where a checked row is wrong.
int cli_exit_code(const VerifierReport& checks);

/// "0x0123456789abcdef".
std::string digest_text(std::uint64_t digest);

void print_report(const cli::Console& console, const std::string& trace,
                  const ReplayReport& report);

/// `environment` becomes the report's "environment".
cli::Json report_json(const std::string& trace, const ReplayReport& report, cli::Json environment);

}  // namespace msa::replay
