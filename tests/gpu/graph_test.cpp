// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cuda/common/device.h"
#include "verify/attend_problem.h"
#include "verify/cuda_target.h"

/// \file
/// CUDA graphs whose arrays change between replays: a captured call fixes pointers, shapes and host
/// numbers alone.

namespace msa::verify {
namespace {

/// One for each CUDA backend; on a device that has the sm90 backend's capability, that one as well.
std::vector<Target> eager_targets() {
  std::vector<Target> all, eager;
  add_cuda_targets(all);
  for (Target& t : all) {
    if (t.name == "cuda-" + t.backend) eager.push_back(std::move(t));
  }
  if (!eager.empty() && cuda::capability(0) == 90) {
    EXPECT_TRUE(std::any_of(eager.begin(), eager.end(), [](const Target& t) {
      return t.backend == "sm90";
    })) << "the sm90 backend is off on a device that it is for";
  }
  return eager;
}

/// Of request r, whose content is r + 1.
std::int64_t keys_of(std::uint64_t content) {
  return 130 + (static_cast<std::int64_t>(content) - 1) * 37;
}

/// The fewer requests and KV heads, the more CTAs share a request: from 16 to one that has several.
struct Shape {
  std::int64_t requests, m, kv_heads;
};

/// Few requests are long ones, so that all CTAs have pages.
AttendSpec decode_spec(DType kv, const Shape& shape) {
  const std::int64_t m = shape.m, kv_heads = shape.kv_heads;
  AttendSpec s;
  s.hq = 16 * kv_heads;
  s.hkv = kv_heads;
  s.kv = kv;
  s.batch.m = m;
  for (std::int64_t r = 0; r < shape.requests; ++r) {
    const auto content = static_cast<std::uint64_t>(r + (shape.requests < 64 ? 60 : 1));
    s.batch.decodes.push_back({m, keys_of(content), content});
  }
  s.device_scales = true;
  s.k_scale = 0.5f;
  s.v_scale = 2;
  s.seed = 300;
  return s;
}

/// Leaves `real` requests of at most `most` keys; the others become padding rows with a table that
/// names no page.
void leave(AttendProblem& problem, const AttendSpec& spec, std::int64_t real, std::int64_t most) {
  const auto requests = static_cast<std::int64_t>(spec.batch.decodes.size());
  const std::int64_t columns = problem.table().view().shape[1];
  for (std::int64_t r = 0; r < requests; ++r) {
    const bool padding = r >= real;
    const std::int64_t keys = spec.batch.decodes[static_cast<std::size_t>(r)].keys;
    i32(problem.seq_lens(), r) =
        padding ? 0 : static_cast<std::int32_t>(std::min(keys - real % 3, most));
    for (std::int64_t c = 0; padding && c < columns; ++c) {
      i32(problem.table(), r, c) = std::numeric_limits<std::int32_t>::max();
    }
  }
}

/// The next round's contents: other queries, keys and scales on other pages, and other selections
/// of as many blocks, so that the pool stays as large as it was when it was captured.
void change_contents(AttendSpec& spec, std::int64_t round) {
  ++spec.page_seed;
  ++spec.seed;
  spec.k_scale *= 0.75f;
  spec.v_scale += 0.5f;
  const std::int64_t m = spec.batch.m;
  spec.edit_ids = [round, m](std::uint64_t content, std::int64_t, std::int64_t list,
                             std::vector<std::int32_t>& ids) {
    // Blocks that all rows of the request see, taken in turn from a place that moves on.
    const std::int64_t seen = (keys_of(content) - m + page_size) / page_size;
    std::fill(ids.begin(), ids.end(), -1);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(seen, 13); ++i) {
      ids[static_cast<std::size_t>(i + round) % ids.size()] =
          static_cast<std::int32_t>((5 * list + 3 * round + i) % seen);
    }
  };
}

class Replay : public testing::TestWithParam<DType> {};

TEST_P(Replay, serves_fewer_and_shorter_requests_with_all_contents_changed_in_place) {
  const std::vector<Target> targets = eager_targets();
  if (targets.empty()) GTEST_SKIP() << "no CUDA device";
  for (const Target& eager : targets) {
    for (const Shape& shape : {Shape{64, 1, 1}, Shape{64, 4, 1}, Shape{64, 1, 4}, Shape{8, 1, 4},
                               Shape{8, 2, 1}, Shape{1, 1, 4}, Shape{1, 8, 1}}) {
      eager.activate();
      AttendSpec spec = decode_spec(GetParam(), shape);
      std::int64_t round = 0;
      change_contents(spec, round);
      const Target graph = replaying(eager);
      AttendProblem called(eager, spec, Poison::nan), replayed(graph, spec, Poison::nan);
      Judge judge;
      struct Left {
        std::int64_t requests, keys;
      };
      const std::int64_t all = shape.requests, any = 1 << 30;
      for (const Left& left : {Left{all, any}, Left{all - 1, any}, Left{all, 100}, Left{5, any},
                               Left{1, 1900}, Left{all, 0}, Left{all, any}}) {
        const std::int64_t real = std::min(left.requests, all);
        change_contents(spec, ++round);
        const AttendProblem contents(eager, spec, Poison::nan);
        for (AttendProblem* problem : {&called, &replayed}) {
          problem->take_contents(contents);
          leave(*problem, spec, real, left.keys);
        }
        const AttendOutput want = called.run(judge), got = replayed.run(judge);
        const std::string what =
            eager.name + ", " + std::to_string(real) + " of " + std::to_string(all) + " requests";
        judge.same_bits(got.out.data(), want.out.data(), 2, {called.tokens(), spec.hq, head_dim},
                        what + ", out");
        judge.same_bits(got.lse.data(), want.lse.data(), 4, {called.tokens(), spec.hq},
                        what + ", lse");
      }
      EXPECT_TRUE(judge.passed()) << judge.outcome().detail;
    }
  }
}

/// Nothing is remembered by address: a cache that is freed, and another one that may lie in its
/// place with other strides.
TEST_P(Replay, of_nothing_is_needed_when_a_cache_is_allocated_anew) {
  const std::vector<Target> targets = eager_targets();
  if (targets.empty()) GTEST_SKIP() << "no CUDA device";
  for (const Target& eager : targets) {
    eager.activate();
    AttendSpec spec = decode_spec(GetParam(), {64, 1, 4});
    std::optional<AttendOutput> first;
    for (KVLayout layout : all_kv_layouts) {
      spec.layout = layout;
      Judge judge;
      AttendProblem problem(eager, spec, Poison::nan);
      const AttendOutput output = problem.run(judge);
      if (!first) first = output;
      judge.same_bits(output.out.data(), first->out.data(), 2,
                      {problem.tokens(), spec.hq, head_dim}, eager.name + ", " + name(layout));
      EXPECT_TRUE(judge.passed()) << judge.outcome().detail;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Attend, Replay,
                         testing::Values(DType::bf16, DType::f16, DType::e4m3, DType::e5m2),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace msa::verify
