// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "common/numeric.h"
#include "msa/merge.h"
#include "reference/reference.h"
#include "verify/attend_problem.h"

/// \file
/// Context parallelism: every shard against the reference, and all of them merged.

namespace msa::verify {
namespace {

/// Partial results as f32, so that merging adds no rounding of its own.
struct Partial {
  Array out;  // [T, Hq, 128] f32
  Array lse;  // [T, Hq] f32
};

Partial partial_of(const Target& target, const AttendProblem& problem, const AttendOutput& output) {
  const AttendSpec& spec = problem.spec();
  const std::int64_t tokens = problem.tokens();
  Partial p{Array(target, DType::f32, {tokens, spec.hq, head_dim}, Poison::nan),
            Array(target, DType::f32, {tokens, spec.hq}, Poison::nan)};
  for (std::int64_t i = 0; i < tokens * spec.hq * head_dim; ++i) {
    p.out.data<float>()[i] = static_cast<float>(load(spec.out, output.out.data(), i));
  }
  for (std::int64_t i = 0; i < tokens * spec.hq; ++i) {
    p.lse.data<float>()[i] = static_cast<float>(load(DType::f32, output.lse.data(), i));
  }
  return p;
}

/// Merges b into a, in place.
void merge_into(const Target& target, const Partial& a, const Partial& b) {
  for (const Array* array : {&a.out, &a.lse, &b.out, &b.lse}) array->buffer().upload();
  MergeArgs args;
  args.out_a = a.out.view(Side::target);
  args.lse_a = a.lse.view(Side::target);
  args.out_b = b.out.view(Side::target);
  args.lse_b = b.lse.view(Side::target);
  args.out = a.out.view(Side::target);
  args.lse = a.lse.view(Side::target);
  args.stream = target.stream;
  target.submit([&] { merge_states(args); });
  target.synchronize();
  a.out.buffer().download();
  a.lse.buffer().download();
}

Outcome check_shards(const Target& target, const AttendSpec& spec, int world) {
  Judge judge;
  Partial merged;
  for (int rank = 0; rank < world; ++rank) {
    AttendSpec shard = spec;
    shard.shard = {rank, world};
    const AttendOutput output = poisoned_run(target, shard, judge);
    const AttendProblem problem(target, shard, Poison::nan);
    judge_against_reference(judge, problem, output);
    const Partial partial = partial_of(target, problem, output);
    if (rank == 0) {
      merged = partial;
    } else {
      merge_into(target, merged, partial);
    }
  }
  const AttendProblem whole(target, spec, Poison::nan);
  const auto want = reference::attend(whole.args(Side::host));
  const float* out = merged.out.data<float>();
  const Distance d = distance({out, out + want.out.size()}, want.out);
  judge.at_most(d.max_abs, 1.7e-2, "merged max abs");
  judge.at_most(d.relative_l2, 4e-3, "merged relative L2");
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    judge.near(merged.lse.data<float>()[i], want.lse[i], 1e-4 + 1e-6 * std::fabs(want.lse[i]),
               "merged lse");
  }
  return judge.outcome();
}

}  // namespace

void add_attend_shards(std::vector<Case>& cases) {
  for (int world = 1; world <= 8; ++world) {
    for (DType kv : {DType::bf16, DType::e4m3}) {
      for (bool messy : {false, true}) {
        AttendSpec s;
        s.hq = 8;
        s.hkv = 2;
        s.kv = kv;
        s.out = DType::f16;
        s.ids = messy ? Ids::messy : Ids::sorted;
        s.batch.m = 2;
        s.batch.decodes = requests({0, 2, 128, 130, 1025, 3000});
        s.batch.prefills = prefills({20, 3}, {900, 3});
        s.batch.padding_tokens = 1;
        s.seed = 70 + static_cast<std::uint64_t>(world);
        const std::string what =
            "world " + std::to_string(world) + (messy ? ", messy" : "") + ", kv " + name(kv);
        cases.push_back({"attend", "shards", what,
                         [s, world](const Target& t) { return check_shards(t, s, world); }, false,
                         false});
        s.causal = false;
        if (!messy) {
          cases.push_back({"attend", "shards", what + ", causal off",
                           [s, world](const Target& t) { return check_shards(t, s, world); }, false,
                           false});
        }
      }
    }
  }
  // The other fast groups, with more blocks than a row may select: the batch of
  // examples/context_parallel.cpp.
  for (int world : {2, 5, 8}) {
    for (std::int64_t hkv : {1, 2}) {
      AttendSpec s;
      s.hq = 16;
      s.hkv = hkv;
      s.batch.decodes = requests({9000, 2000, 130});
      s.batch.prefills = prefills({24}, {3000});
      s.seed = 80 + static_cast<std::uint64_t>(world);
      const std::string what =
          "16/" + std::to_string(hkv) + " heads, 9000 keys, world " + std::to_string(world);
      cases.push_back({"attend", "shards", what,
                       [s, world](const Target& t) { return check_shards(t, s, world); }, false,
                       false});
    }
  }
}

}  // namespace msa::verify
