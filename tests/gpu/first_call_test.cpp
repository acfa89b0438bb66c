// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "verify/attend_problem.h"
#include "verify/cuda_target.h"
#include "verify/index_problem.h"

/// \file
/// The first call of a process may be a captured one. Each case has a process of its own, and this
/// one never starts CUDA: a child could not use it then.

namespace msa::verify {
namespace {

constexpr int passed = 0, failed = 1, no_device = 77;

/// Exit code of a child that runs `body`.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int code = failed;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Captures the process's first call on the backend, and compares with an eager one after it.
template <class Problem, class Spec>
int captured_first(const std::string& backend, const Spec& spec) {
  std::vector<Target> targets;
  add_cuda_targets(targets);
  for (const Target& graph : targets) {
    if (graph.name != "cuda-" + backend + "-graph") continue;
    graph.activate();
    Judge judge;
    Problem captured(graph, spec, Poison::nan);
    const auto first = captured.run(judge);
    Target eager = graph;
    eager.submit = [](const std::function<void()>& calls) { calls(); };
    Problem called(eager, spec, Poison::huge);
    same_rows(judge, called, called.run(judge), captured, first, "captured first");
    if (judge.passed()) return passed;
    std::fprintf(stderr, "%s\n", judge.outcome().detail.c_str());
    return failed;
  }
  return no_device;
}

/// Skips where the portable backend is off, as all are then; a backend that the device does not
/// have promises nothing.
void expect_passed(const std::string& backend, const std::function<int()>& body) {
  const int code = in_child(body);
  if (code == no_device && backend == "portable") GTEST_SKIP() << "no CUDA device";
  if (code != no_device) {
    EXPECT_EQ(code, passed) << backend;
  }
}

AttendSpec attend_spec(bool prefill) {
  AttendSpec s;
  s.batch.decodes = requests({130, 1025, 3000});
  if (prefill) s.batch.prefills = prefills({40}, {300});
  return s;
}

TEST(FirstCall, attend_may_be_captured) {
  for (const bool prefill : {false, true}) {
    for (const char* backend : {"portable", "sm90"}) {
      expect_passed(backend,
                    [&] { return captured_first<AttendProblem>(backend, attend_spec(prefill)); });
    }
  }
}

TEST(FirstCall, index_blocks_may_be_captured) {
  expect_passed("portable", [] {
    IndexSpec s;
    s.batch.decodes = requests({130, 1025, 9000});
    return captured_first<IndexProblem>("portable", s);
  });
}

}  // namespace
}  // namespace msa::verify
