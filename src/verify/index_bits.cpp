// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string>

#include "common/numeric.h"
#include "cpu/parallel.h"
#include "msa/device.h"
#include "verify/concurrent.h"
#include "verify/index_problem.h"

/// \file
/// Section 4's promise: scores, and so ids, are the same bits on every run, for any batch
/// composition, split or buffer size.

namespace msa::verify {
namespace {

constexpr DType key_types[] = {DType::bf16, DType::e4m3};

void add(std::vector<Case>& cases, const std::string& name,
         std::function<Outcome(const Target&)> run, bool cpu_only = false) {
  cases.push_back({"index_blocks", "bits", name, std::move(run), false, cpu_only});
}

IndexSpec base(DType k, std::int64_t m, std::int64_t heads) {
  IndexSpec s;
  s.k = k;
  s.heads = heads;
  s.topk = 8;
  s.batch.m = m;
  s.batch.decodes = requests({2, 129, 800, 6000});
  s.batch.prefills = prefills({70, 5}, {600, 5100});
  s.seed = 70;
  return s;
}

std::string suffix(const IndexSpec& s) {
  return std::string(", k ") + name(s.k) + ", m " + std::to_string(s.batch.m) + ", " +
         std::to_string(s.heads) + " heads" + (s.edit_keys ? ", NaN in blocks" : "");
}

/// A NaN in one element of every third block or so: visible to all rows, to some or to none.
IndexSpec with_nan(IndexSpec s) {
  s.edit_keys = [type = s.k](std::uint64_t content, std::int64_t block, void* keys) {
    Rng rng(seed_of({71, content, static_cast<std::uint64_t>(block)}));
    if (!rng.chance(30)) return;
    store(type, keys, rng.below(std::int64_t{page_size} * head_dim),
          std::numeric_limits<double>::quiet_NaN());
  };
  return s;
}

/// Calls of one problem, its workspace and outputs left as the last call made them.
Outcome check_repeats(const Target& target, const IndexSpec& spec, int calls) {
  Judge judge;
  IndexProblem problem(target, spec, Poison::nan);
  const IndexOutput first = problem.run(judge);
  for (int i = 1; i < calls; ++i) {
    same_rows(judge, problem, first, problem, problem.run(judge), "call " + std::to_string(i));
  }
  return judge.outcome();
}

/// Where things lie must not matter.
void add_placement(std::vector<Case>& cases, const IndexSpec& s) {
  const auto same = [&](const std::string& what, const std::function<void(IndexSpec&)>& change) {
    IndexSpec other = s;
    change(other);
    add(cases, what + suffix(s),
        [s, other, what](const Target& t) { return check_same_bits(t, s, other, what); });
  };
  same("a permuted page table", [](IndexSpec& o) { o.page_seed = 99; });
  same("padded pages and tokens", [](IndexSpec& o) {
    o.page_pad = 1000;
    o.token_pad = 40;
  });
  same("misaligned bases and padded heads", [](IndexSpec& o) {
    o.misalign = 1;
    o.head_pad = 3;
    o.token_pad = 1;
  });
  same("bases off by 16 bytes", [](IndexSpec& o) {
    o.misalign = 16 / static_cast<std::int64_t>(size_of(o.k));
    o.token_pad = 2 * o.misalign;
  });
  same("a larger pool", [](IndexSpec& o) { o.spare_pages = 40; });
  same("a wider table", [](IndexSpec& o) {
    o.batch.spare_columns = 300;
    o.batch.table_pad = 77;
  });
  same("larger bounds", [](IndexSpec& o) { o.batch.bound_slack = 100000; });
  same("a head-major selection and scores with tokens outside", [](IndexSpec& o) {
    o.head_major = true;
    o.tokens_outside = true;
  });
  same("more rows than tokens, more blocks than needed", [](IndexSpec& o) {
    o.spare_rows = 50;
    o.spare_blocks = 33;
  });
}

/// The same requests among others, in other orders, and prefills in other chunks.
void add_composition(std::vector<Case>& cases, const IndexSpec& s) {
  IndexSpec alone = s;
  alone.batch.decodes = {s.batch.decodes[3]};
  alone.batch.prefills.clear();
  add(cases, "report 16: a decode request alone and in a mixed batch" + suffix(s),
      [s, alone](const Target& t) { return check_same_bits(t, alone, s, "batch"); });
  IndexSpec many = alone;
  for (std::uint64_t i = 0; i < 40; ++i) {
    many.batch.decodes.push_back({1, static_cast<std::int64_t>(1 + 60 * (i % 7)), 100 + i % 7});
  }
  add(cases, "report 86: a decode request alone and among 40" + suffix(s),
      [alone, many](const Target& t) { return check_same_bits(t, alone, many, "batch"); });
  many.batch.decodes.clear();
  for (std::uint64_t i = 0; i < 300; ++i) {
    many.batch.decodes.push_back(
        {1, static_cast<std::int64_t>(i % 9 == 0 ? 0 : 1 + 700 * (i % 2)), 100 + i % 7});
  }
  many.batch.decodes[170] = alone.batch.decodes[0];
  many.batch.prefills = prefills({1, 0, 2, 30}, {300, 700, 1400, 1200});
  add(cases, "a decode request alone and among 300" + suffix(s),
      [alone, many](const Target& t) { return check_same_bits(t, alone, many, "batch"); });
  IndexSpec backward = s;
  std::reverse(backward.batch.decodes.begin(), backward.batch.decodes.end());
  std::reverse(backward.batch.prefills.begin(), backward.batch.prefills.end());
  backward.batch.padding_tokens = 3;
  add(cases, "another order of requests" + suffix(s),
      [s, backward](const Target& t) { return check_same_bits(t, s, backward, "order"); });

  IndexSpec whole = s;
  whole.batch.decodes.clear();
  whole.batch.prefills = {{200, 5000, 3}};
  struct Chunk {
    const char* name;
    std::vector<Request> requests;
  };
  const Chunk chunks[] = {{"odd chunk", {{61, 4937, 3}}},
                          {"one row", {{1, 4931, 3}}},
                          {"in a batch", {{7, 7, 1}, {130, 4970, 3}, {65, 400, 2}}}};
  for (const Chunk& chunk : chunks) {
    IndexSpec part = whole;
    part.batch.prefills = chunk.requests;
    add(cases, std::string("prefill, ") + chunk.name + suffix(s),
        [whole, part](const Target& t) { return check_same_bits(t, whole, part, "chunk"); });
  }
}

/// The same bits for every workspace cap, and never more memory than the cap.
Outcome check_caps(const Target& target, const IndexSpec& spec) {
  Judge judge;
  IndexProblem full(target, spec, Poison::nan);
  const IndexOutput want = full.run(judge);
  for (std::size_t cap : {std::size_t{1} << 20, std::size_t{1} << 14, std::size_t{5000},
                          std::size_t{600}, std::size_t{0}}) {
    IndexSpec capped = spec;
    capped.workspace_cap = cap;
    IndexProblem problem(target, capped, Poison::huge);
    same_rows(judge, full, want, problem, problem.run(judge),
              "cap of " + std::to_string(cap) + " bytes");
  }
  IndexProblem misaligned(target, spec, Poison::huge);
  same_rows(judge, full, want, misaligned,
            misaligned.run(judge,
                           [](IndexArgs& a) {
                             if (a.workspace.bytes == 0) return;
                             a.workspace.data = static_cast<char*>(a.workspace.data) + 1;
                             a.workspace.bytes -= 1;
                             a.workspace_cap = a.workspace.bytes;
                           }),
            "a misaligned workspace");
  return judge.outcome();
}

/// A number of threads, and a host program's pool in the place of the built-in one, for one scope.
class ThreadScope {
 public:
  explicit ThreadScope(int threads, ParallelFor hook = nullptr) {
    cpu::set_num_threads_for_testing(threads);
    set_parallel_for(hook, nullptr);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;
  ~ThreadScope() {
    set_parallel_for(nullptr, nullptr);
    cpu::set_num_threads_for_testing(0);
  }
};

void backwards(void*, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
  for (std::int64_t i = tasks; i-- > 0;) body(context, i);
}

Outcome check_threads(const Target& target, const IndexSpec& spec) {
  Judge judge;
  IndexProblem problem(target, spec, Poison::nan);
  const IndexOutput want = problem.run(judge);
  for (int threads : {1, 2, 3, 16}) {
    const ThreadScope scope(threads);
    IndexProblem other(target, spec, Poison::huge);
    same_rows(judge, problem, want, other, other.run(judge), std::to_string(threads) + " threads");
  }
  const ThreadScope scope(7, backwards);
  IndexProblem other(target, spec, Poison::huge);
  same_rows(judge, problem, want, other, other.run(judge), "tasks backwards");
  return judge.outcome();
}

}  // namespace

void add_index_bits(std::vector<Case>& cases) {
  for (DType k : key_types) {
    // Decode sums in two ways, by the number of rows of a request: 4 and 8 rows here.
    for (std::int64_t m : {1, 2}) {
      const IndexSpec s = base(k, m, 4);
      add_placement(cases, s);
      add(cases, "report 10: the same call 20 times" + suffix(s),
          [s](const Target& t) { return check_repeats(t, s, 20); });
      add(cases, "report 59: workspace caps" + suffix(s),
          [s](const Target& t) { return check_caps(t, s); });
      add(
          cases, "threads and their pools" + suffix(s),
          [s](const Target& t) { return check_threads(t, s); }, true);
      add_composition(cases, s);
    }
    add_composition(cases, base(k, 1, 1));
    add_composition(cases, base(k, 4, 1));
    add_composition(cases, base(k, 3, 3));
    const IndexSpec nan = with_nan(base(k, k == DType::bf16 ? 1 : 2, 4));
    add_placement(cases, nan);
    add(cases, "report 10: the same call 5 times" + suffix(nan),
        [nan](const Target& t) { return check_repeats(t, nan, 5); });
    add(cases, "report 59: workspace caps" + suffix(nan),
        [nan](const Target& t) { return check_caps(t, nan); });
    add(
        cases, "threads and their pools" + suffix(nan),
        [nan](const Target& t) { return check_threads(t, nan); }, true);
    add_composition(cases, nan);
  }
  IndexSpec s = base(DType::bf16, 2, 4);
  add(
      cases, "report 10: three threads call at once",
      [s](const Target& t) { return check_concurrent<IndexProblem>(t, s, 3); }, true);
  s.rule.reduce_heads = true;
  add(cases, "workspace caps, heads reduced", [s](const Target& t) { return check_caps(t, s); });
}

}  // namespace msa::verify
