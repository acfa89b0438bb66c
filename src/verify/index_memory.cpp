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

/// index_q, the selection, the table and the scores with rows so far apart that offsets pass 2^31
/// elements: scores of 65,536 tokens and 8192 blocks do. The scores are stretched along each of
/// their dimensions; select_blocks reads them there.
Outcome check_far_rows(const Target& target, const IndexSpec& spec) {
  Judge judge;
  IndexProblem problem(target, spec, Poison::nan);
  const IndexOutput want = problem.run(judge);
  const std::vector<std::int64_t> ids_dims = {problem.tokens(), problem.lists(), spec.topk};
  const auto same_ids = [&](const std::vector<std::byte>& ids, const std::string& what) {
    judge.same_bits(ids.data(), want.ids.data(), sizeof(std::int32_t), ids_dims, what);
  };
  // A few at a time: a device has to hold them.
  const Tensor selection = problem.args(Side::host).selection;
  for (int dim : {0, 1}) {
    FarArrays far(target);
    IndexArgs a = problem.args(Side::target);
    if (dim == 0) a.index_q = far.spread(problem.q().view());
    if (dim == 1) a.batch.block_table = far.spread(problem.table().view());
    a.selection = far.blank(selection, dim);
    target.submit([&] { index_blocks(a); });
    target.synchronize();
    same_ids(far.contents(a.selection), dim == 0 ? "far rows" : "far lists");
  }
  for (int dim : {0, 1, 2}) {
    FarArrays far(target);
    const std::string what = "scores far along dimension " + std::to_string(dim);
    IndexArgs a = problem.args(Side::target);
    if (dim == 0) a.index_q = far.spread(problem.q().view());
    IndexScoresArgs scores = problem.scores_args(a, Side::host);
    scores.scores = far.blank(scores.scores, dim);
    const Array scratch(target, DType::u8, {static_cast<std::int64_t>(workspace_size(scores))},
                        Poison::nan);
    scores.workspace = {scratch.buffer().data(Side::target), scratch.buffer().bytes()};
    const Array ids(target, DType::i32, ids_dims, Poison::nan);
    SelectArgs select;
    select.scores = scores.scores;
    select.valid_blocks = problem.valid_blocks().view(Side::target);
    select.selection = dim == 1 ? far.blank(ids.view()) : ids.view(Side::target);
    select.num_tokens = problem.tokens();
    select.rule = spec.rule;
    select.stream = target.stream;
    const Array select_scratch(target, DType::u8,
                               {static_cast<std::int64_t>(workspace_size(select))}, Poison::nan);
    select.workspace = {select_scratch.buffer().data(Side::target),
                        select_scratch.buffer().bytes()};
    target.submit([&] {
      index_scores(scores);
      select_blocks(select);
    });
    target.synchronize();
    judge.same_bits(far.contents(scores.scores).data(), want.scores.data(), sizeof(float),
                    {spec.heads, problem.blocks(), problem.tokens()}, what);
    ids.buffer().download();
    same_ids(dim == 1 ? far.contents(select.selection) : dense_bytes(ids.view()),
             what + ", selection");
  }
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
  for (std::int64_t m : {1, 4}) {  // decode sums in two ways, by its rows
    IndexSpec s = base(DType::bf16);
    s.batch.m = m;
    s.spare_rows = 0;
    // On a device too: reservations of 2^31 elements fit there, those of the far pages do not.
    cases.push_back(
        {"index_blocks", "memory",
         "report 32: rows past 2^31 elements of index_q, selection, scores and table, m " +
             std::to_string(m),
         [s](const Target& t) { return check_far_rows(t, s); }, true});
  }
  add_empty(cases);
}

}  // namespace msa::verify
