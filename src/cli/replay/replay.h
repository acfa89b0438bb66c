// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/replay/engine.h"
#include "cli/replay/scheduler.h"
#include "cli/replay/trace.h"
#include "cli/replay/verifier.h"

/// \file
/// The replay of one trace: choose how much, serve it, measure, check.

namespace msa::replay {

struct ReplayOptions {
  std::int64_t requests = 0;    ///< leading requests to serve; 0 = as many as fit the budget
  bool all = false;             ///< serve the whole trace
  double budget_seconds = 120;  ///< for the choice of requests, calibration included
  LayerShape shape;
  std::int64_t layers = 1;
  DType kv_type = DType::bf16;
  DType index_type = DType::bf16;
  KVLayout layout = KVLayout::LBHNC;
  std::int64_t pages = 0;  ///< 0 = default_pages()
  std::int64_t max_batch = 32;
  std::int64_t chunk = 2048;
  std::int64_t draft = 0;
  bool eager = false;            ///< no graphs, which a device has otherwise
  std::int64_t verify_rows = 0;  ///< rows checked a step; 0 = a bounded share of the time
  std::uint64_t seed = 1;
};

/// One step as it went.
struct StepRecord {
  double start = 0;  ///< s since the first step began
  PhaseTimes times;
  std::int64_t decode_tokens = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t running = 0;
  std::int64_t pages_in_use = 0;
  std::int64_t pages_cached = 0;
  StepBytes bytes;  ///< of steps of decode rows alone

  double seconds() const { return times.total(false); }  ///< what serving took, harness aside
};

/// How like the selections of neighbouring tokens are: the mean Jaccard index over pairs of
/// adjacent rows of one request that had more blocks to choose from than they could take.
struct Locality {
  double sum = 0;
  std::int64_t pairs = 0;

  void add(const StepPlan& plan, const ConstTensor& selection);
  double jaccard() const { return pairs > 0 ? sum / static_cast<double>(pairs) : 0; }
};

struct ReplayReport {
  ReplayOptions options;  ///< as served: requests and pages are set
  std::string device;     ///< "cpu", "cuda:0"
  std::string backend;    ///< that served the last attend
  std::int64_t trace_requests = 0;
  double calibration_seconds = 0;  ///< 0 = the number of requests was given
  double predicted_seconds = 0;    ///< 0 likewise
  double serving_seconds = 0;      ///< first step to last, harness included
  std::size_t cache_bytes = 0;
  std::vector<StepRecord> steps;
  SchedulerStats scheduler;
  VerifierReport checks;
  Locality locality;
  std::uint64_t digest = 0;
  std::vector<std::int64_t> captured;  ///< batch sizes of the graphs that decode steps replayed
  double memory_rate = 0;              ///< bytes a second that the device moves; 0 = not measured
};

/// What a caller may watch; each may be empty.
struct ReplayHooks {
  /// Before the first step: the report so far, and the tokens that all steps will compute.
  std::function<void(const ReplayReport& report, std::int64_t tokens)> on_start;
  /// After each step: tokens computed so far.
  std::function<void(std::int64_t tokens)> on_step;
  /// Between a step and its check: tests put faults here.
  std::function<void(const StepPlan& plan, StepTensors& tensors)> on_computed;
};

/// Pages of each layer's main cache where none are asked for: a function of the trace and the
/// options, not of the machine. As many as the whole trace would need, within 1.5 GB a layer; never
/// fewer than its longest request needs.
std::int64_t default_pages(std::span<const TraceRequest> trace, const ReplayOptions& options);

/// Serves the trace in a place.
/// \throws Error naming every option that cannot be served.
ReplayReport run_replay(std::span<const TraceRequest> trace, const ReplayOptions& options,
                        const ReplayHooks& hooks, Place& place = cli::host_place());

}  // namespace msa::replay
