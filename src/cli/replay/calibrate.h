// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "cli/replay/engine.h"
#include "cli/replay/scheduler.h"
#include "cli/replay/verifier.h"

/// \file
/// How many requests fit into a time budget.

namespace msa::replay {

/// Seconds that a step takes on this machine, from a few measured ones.
struct CostModel {
  double token = 0;           ///< s a token: rows, cache write, digest
  double step = 0;            ///< s a step: whatever does not depend on its tokens
  double prefill_index = 0;   ///< s a multiply-add of the indexer …
  double prefill_attend = 0;  ///< … and of attend, in prompt chunks
  double decode_index = 0;    ///< the same in decode
  double decode_attend = 0;
  double verify_share = 0;  ///< time of checking ÷ time of the steps

  double seconds(const LayerShape& shape, const StepPlan& plan) const;
};

/// Runs a few synthetic steps on `engine`: prompt chunks at the end of a long context and decode
/// over several contexts, with checks as `verifier` says. Leaves the engine's digest as at the
/// start.
CostModel calibrate(Engine& engine, const VerifierConfig& verifier);

/// Seconds that serving the first `requests` requests would take by the model.
double predict_seconds(const CostModel& model, const LayerShape& shape,
                       std::span<const TraceRequest> trace, std::span<const Content> contents,
                       const SchedulerConfig& config);

/// The largest number of leading requests whose predicted time stays within `seconds`; at least 1.
std::int64_t choose_requests(const CostModel& model, const LayerShape& shape,
                             std::span<const TraceRequest> trace, std::span<const Content> contents,
                             const SchedulerConfig& config, double seconds);

}  // namespace msa::replay
