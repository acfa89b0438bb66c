// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "reference/reference.h"
#include "verify/index_problem.h"

/// \file
/// Where the indexer's arrays lie: any strides, offsets past 2^31 elements, tables that name no
/// page, and calls without anything in them.

namespace msa::verify {
namespace {

constexpr DType key_types[] = {DType::bf16, DType::e4m3};

void add(std::vector<Case>& cases, const std::string& name,
         std::function<Outcome(const Target&)> run, bool slow = false) {
  cases.push_back({"index_blocks", "memory", name, std::move(run), slow, slow});
}

IndexSpec base(DType k) {
  IndexSpec s;
  s.k = k;
  s.topk = 6;
  s.batch.m = 2;
  s.batch.decodes = requests({3, 200, 1500});
  s.batch.prefills = prefills({30}, {1400});
  s.seed = 80;
  return s;
}

void add_strides(std::vector<Case>& cases, DType k) {
  const std::string suffix = std::string(", k ") + name(k);
  IndexSpec s = base(k);
  s.q = k == DType::bf16 ? DType::f16 : DType::e4m3;
  s.misalign = 1;
  s.head_pad = 1;
  s.token_pad = 1;
  s.page_pad = 3;
  add(cases, "report 71: bases and strides off by one element" + suffix,
      [s](const Target& t) { return check_index(t, s); });
  IndexSpec views = base(k);
  views.head_major = true;
  views.tokens_outside = true;
  views.spare_rows = 9;
  add(cases, "a head-major selection, scores with tokens outside" + suffix,
      [views](const Target& t) { return check_index(t, views); });
  IndexSpec interleaved = base(k);  // the main cache's pages between the index cache's
  interleaved.page_pad = 2 * page_size * 2 * head_dim;
  add(cases, "report 67: other data between pages" + suffix,
      [interleaved](const Target& t) { return check_index(t, interleaved); });
  IndexSpec few = base(k);
  few.spare_blocks = -4;
  add(cases, "scores of fewer blocks than the requests have" + suffix,
      [few](const Target& t) { return check_index(t, few); });
}

void add_tables(std::vector<Case>& cases, DType k) {
  const std::string suffix = std::string(", k ") + name(k);
  IndexSpec garbage = base(k);
  garbage.garbage_cells = true;
  garbage.values = IndexValues::integers;
  add(cases, "needed cells that name no page" + suffix,
      [garbage](const Target& t) { return check_index(t, garbage); });
  IndexSpec narrow = base(k);
  narrow.batch.spare_columns = -5;
  add(cases, "report 13: a table narrower than the requests" + suffix,
      [narrow](const Target& t) { return check_index(t, narrow); });
  IndexSpec none = base(k);
  none.batch.spare_columns = -100;
  add(cases, "a table without columns" + suffix,
      [none](const Target& t) { return check_index(t, none); });
}

/// Page ids at the end of a reservation: the same bits as ids near 0.
void add_far_pages(std::vector<Case>& cases, DType k) {
  struct Far {
    const char* name;
    std::int64_t first_page;
    std::int64_t page_pad;
  };
  const Far pools[] = {{"report 33: across 2^31 elements", 131072 - 5, 0},
                       {"report 35: across 2^32 elements", 262144 - 5, 0},
                       {"report 30: page ids past 65,536", 70000, 0},
                       {"60 layers between pages", 2180, 59 * page_size * head_dim}};
  for (const Far& pool : pools) {
    const IndexSpec near = base(k);
    IndexSpec far = near;
    far.first_page = pool.first_page;
    far.page_pad = pool.page_pad;
    add(
        cases, std::string(pool.name) + ", k " + name(k),
        [near, far](const Target& t) { return check_same_bits(t, near, far, "far pages"); }, true);
  }
}

/// A run whose arguments were changed, judged against the reference on the same arguments.
Outcome check_changed(const Target& target, const IndexSpec& spec,
                      const std::function<void(IndexArgs&)>& change) {
  Judge judge;
  IndexProblem problem(target, spec, Poison::nan);
  const IndexOutput output = problem.run(judge, change);
  IndexArgs args = problem.args(Side::host);
  change(args);
  const IndexScoresArgs scores = problem.scores_args(args, Side::host);
  const std::int64_t tokens = args.batch.num_actual_tokens;
  const std::vector<std::int32_t> ids =
      reference::select_blocks(reference::index_scores(scores), spec.heads, problem.blocks(),
                               tokens, reference::valid_blocks(args.batch), spec.topk, spec.rule);
  judge.same_bits(output.ids.data(), ids.data(), sizeof(std::int32_t),
                  {tokens, problem.lists(), spec.topk}, "ids");
  return judge.outcome();
}

void add_empty(std::vector<Case>& cases) {
  IndexSpec s = base(DType::bf16);
  s.batch = {};
  add(cases, "zero size: no request, no token", [s](const Target& t) { return check_index(t, s); });
  s.batch.padding_tokens = 5;
  add(cases, "zero size: tokens of no request", [s](const Target& t) { return check_index(t, s); });
  s.batch.decodes = requests({0, 0});
  s.batch.prefills = prefills({0}, {0});
  add(cases, "report 47: all lengths 0", [s](const Target& t) { return check_index(t, s); });
  s.batch = {};
  s.batch.prefills = prefills({0, 3, 0}, {500, 3, 1});
  add(cases, "report 53: requests without tokens",
      [s](const Target& t) { return check_index(t, s); });
  const IndexSpec full = base(DType::bf16);
  add(cases, "zero size: a cache without pages", [full](const Target& t) {
    // Every cell names no page: all scores are −inf.
    return check_changed(t, full, [](IndexArgs& a) { a.index_cache.shape[0] = 0; });
  });
}

}  // namespace

void add_index_memory(std::vector<Case>& cases) {
  for (DType k : key_types) {
    add_strides(cases, k);
    add_tables(cases, k);
    add_far_pages(cases, k);
  }
  add_empty(cases);
}

}  // namespace msa::verify
