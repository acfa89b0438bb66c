// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/replay/engine.h"

/// \file
/// Sampled rows of a running replay against the f64 reference.

namespace msa::replay {

struct VerifierConfig {
  std::int64_t rows_per_step = 0;  ///< 0: as many as `share` of the work pays for
  double share = 0.08;             ///< of the time of a step, about, that checking may add
  std::uint64_t seed = 1;
};

/// Worst error found of one kind, as a share of what the contract's section 9 allows: at most 1.
struct ErrorShare {
  double worst = 0;
  void see(double error, double allowed);
};

struct VerifierReport {
  std::int64_t rows = 0;   ///< checked
  std::int64_t wrong = 0;  ///< of them: at least one value off by more than the tolerance
  ErrorShare write;        ///< q, index_q and the cache rows
  ErrorShare selection;    ///< scores of ids that differ from the reference's choice
  ErrorShare attend_max, attend_mean, attend_l2;
  ErrorShare lse;                       ///< of steps that have it
  double worst_abs_error = 0;           ///< of attend
  std::vector<std::string> complaints;  ///< the first wrong rows, in words

  double worst_share() const;
};

/// Picks rows of a step by a seeded draw and checks, for each of them, the whole way: the rows that
/// write_cache left in q, index_q and both caches; the selected ids against f64 scores of the index
/// cache; the output against f64 attention over the ids that were selected. Every row becomes a
/// reference call of its own, on the same caches and page table.
class Verifier {
 public:
  explicit Verifier(const VerifierConfig& config) : config_(config) {}

  /// Checks rows of the step that `tensors` holds.
  void check(const StepPlan& plan, const StepTensors& tensors);
  /// Checks query token `row` of `item`, which stands in row `token` of the tensors.
  /// \return whether all of it is within the tolerances.
  bool check_row(const StepItem& item, std::int64_t row, std::int64_t token,
                 const StepTensors& tensors);

  const VerifierReport& report() const { return report_; }

 private:
  struct Pick {
    std::size_t item = 0;
    std::int64_t row = 0;    // of the item
    std::int64_t token = 0;  // of the step
  };
  Pick pick(const StepPlan& plan, std::uint64_t bits) const;

  VerifierConfig config_;
  VerifierReport report_;
  double credit_ = 0;  // work that may be spent on checking, in nominal operations
  std::uint64_t draws_ = 0;
};

}  // namespace msa::replay
