// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "verify/attend_problem.h"
#include "verify/cuda_target.h"

/// \file
/// CUDA graphs whose arrays change between replays: a captured call fixes pointers, shapes and host
/// numbers alone.

namespace msa::verify {
namespace {

std::optional<Target> eager_target() {
  std::vector<Target> targets;
  add_cuda_targets(targets);
  if (targets.empty()) return std::nullopt;
  return targets.front();
}

constexpr std::int64_t captured = 64;  // requests

AttendSpec decode_spec(DType kv, std::int64_t m) {
  AttendSpec s;
  s.hq = 16;
  s.hkv = 1;
  s.kv = kv;
  s.batch.m = m;
  for (std::int64_t r = 0; r < captured; ++r) {
    s.batch.decodes.push_back({m, 130 + r * 37, static_cast<std::uint64_t>(r + 1)});
  }
  s.device_scales = true;
  s.k_scale = 0.5f;
  s.v_scale = 2;
  s.seed = 300;
  return s;
}

/// Leaves `real` requests; the others become padding rows with a table that names no page.
void leave(AttendProblem& problem, const AttendSpec& spec, std::int64_t real) {
  const std::int64_t columns = problem.table().view().shape[1];
  for (std::int64_t r = 0; r < captured; ++r) {
    const bool padding = r >= real;
    const std::int64_t keys = spec.batch.decodes[static_cast<std::size_t>(r)].keys;
    i32(problem.seq_lens(), r) = padding ? 0 : static_cast<std::int32_t>(keys - real % 3);
    for (std::int64_t c = 0; padding && c < columns; ++c) {
      i32(problem.table(), r, c) = std::numeric_limits<std::int32_t>::max();
    }
  }
}

class Replay : public testing::TestWithParam<DType> {};

TEST_P(Replay, of_64_requests_serves_fewer_with_other_lengths_and_tables) {
  const std::optional<Target> eager = eager_target();
  if (!eager) GTEST_SKIP() << "no CUDA device";
  for (std::int64_t m : {1, 4}) {
    AttendSpec spec = decode_spec(GetParam(), m);
    const Target graph = replaying(*eager);
    AttendProblem called(*eager, spec, Poison::nan), replayed(graph, spec, Poison::nan);
    Judge judge;
    for (std::int64_t real :
         {captured, std::int64_t{63}, std::int64_t{5}, std::int64_t{1}, captured}) {
      ++spec.page_seed;  // the same requests on other pages
      const AttendProblem contents(*eager, spec, Poison::nan);
      for (AttendProblem* problem : {&called, &replayed}) {
        problem->take_contents(contents);
        leave(*problem, spec, real);
      }
      const AttendOutput want = called.run(judge), got = replayed.run(judge);
      const std::string what = std::to_string(real) + " of 64 requests";
      judge.same_bits(got.out.data(), want.out.data(), 2, {called.tokens(), spec.hq, head_dim},
                      what + ", out");
      judge.same_bits(got.lse.data(), want.lse.data(), 4, {called.tokens(), spec.hq},
                      what + ", lse");
    }
    EXPECT_TRUE(judge.passed()) << judge.outcome().detail;
  }
}

INSTANTIATE_TEST_SUITE_P(Attend, Replay,
                         testing::Values(DType::bf16, DType::f16, DType::e4m3, DType::e5m2),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace msa::verify
