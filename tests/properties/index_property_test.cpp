// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "draw.h"
#include "verify/index_problem.h"

namespace msa::verify {
namespace {

using namespace properties;

IndexSpec any_index() {
  IndexSpec s;
  s.heads = in(1, 5);
  s.topk = one_of<std::int64_t>({1, 2, 6, 16, 64});
  s.rule = {.init_blocks = in(0, 3), .local_blocks = in(0, 3), .reduce_heads = chance(3)};
  s.batch = any_batch(9);
  s.q = one_of({DType::bf16, DType::f16, DType::e4m3});
  s.k = one_of({DType::bf16, DType::e4m3});
  s.exact = chance(2);
  s.values = one_of({IndexValues::normal, IndexValues::integers, IndexValues::equal});
  s.misalign = in(0, 3);
  s.head_pad = in(0, 9);
  s.token_pad = in(0, 9);
  s.page_pad = in(0, 9);
  s.head_major = chance(2);
  s.tokens_outside = chance(2);
  s.garbage_cells = chance(5);
  s.spare_blocks = in(-1, 3);
  s.seed = any_seed();
  s.page_seed = any_seed();
  return s;
}

RC_GTEST_PROP(IndexProperty, AnyProblemMeetsTheReferenceAndIgnoresPoison, ()) {
  const Outcome outcome = check_index(target(any_turn()), any_index());
  if (!outcome.passed) RC_FAIL(outcome.detail);
}

RC_GTEST_PROP(IndexProperty, PlacementNeverChangesAnIdOrAScore, ()) {
  IndexSpec a = any_index();
  a.garbage_cells = false;  // which cells are garbage depends on the table
  IndexSpec b = a;
  b.page_seed = a.page_seed + 1;
  b.spare_pages = in(0, 9);
  b.batch.spare_columns = other_spare_columns(a.batch);
  b.batch.bound_slack = in(0, 5000);
  b.misalign = in(0, 3);
  b.token_pad = in(0, 9);
  b.page_pad = in(0, 9);
  b.head_major = !a.head_major;
  b.workspace_cap = one_of<std::size_t>({0, 1 << 12, default_workspace_cap});
  if (a.batch.tokens() == 0) return;
  Judge judge;
  const Target& at = target(any_turn());
  IndexProblem first(at, a, Poison::nan), second(at, b, Poison::huge);
  const IndexOutput x = first.run(judge), y = second.run(judge);
  judge.require(x.ids == y.ids, "ids differ");
  judge.require(x.scores == y.scores, "scores differ");
  if (!judge.passed()) RC_FAIL(judge.outcome().detail);
}

}  // namespace
}  // namespace msa::verify
