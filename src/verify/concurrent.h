// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "verify/compare.h"
#include "verify/inputs.h"

namespace msa::verify {

/// `callers` host threads, each with three calls of its own at the same time: all must have the
/// bits of a call alone.
template <class Problem, class Spec>
Outcome check_concurrent(const Target& target, const Spec& spec, int callers) {
  Judge judge;
  Problem problem(target, spec, Poison::nan);
  const auto want = problem.run(judge);
  std::vector<Judge> judges(callers);
  std::vector<std::unique_ptr<Problem>> problems;
  problems.reserve(static_cast<std::size_t>(callers));
  for (int i = 0; i < callers; ++i) {
    problems.push_back(std::make_unique<Problem>(target, spec, Poison::huge));
  }
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(callers));
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&, i] {
      for (int call = 0; call < 3; ++call) {
        same_rows(judges[i], problem, want, *problems[i], problems[i]->run(judges[i]),
                  "caller " + std::to_string(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Judge& j : judges) judge.require(j.passed(), j.outcome().detail);
  return judge.outcome();
}

}  // namespace msa::verify
