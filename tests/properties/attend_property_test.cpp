// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "draw.h"
#include "verify/attend_problem.h"

namespace msa::verify {
namespace {

using namespace properties;

AttendSpec any_attend() {
  AttendSpec s;
  s.hkv = in(1, 3);
  s.hq = s.hkv * in(1, s.hkv == 1 ? 16 : 5);
  s.one_list = chance(4);
  s.topk = one_of<std::int64_t>({1, 3, 6, 16, 64});
  s.batch = any_batch(5);
  s.q = one_of({DType::bf16, DType::f16});
  s.kv = one_of({DType::bf16, DType::f16, DType::e4m3, DType::e5m2});
  s.out = one_of({DType::bf16, DType::f16});
  s.ids = one_of({Ids::sorted, Ids::messy, Ids::no_own, Ids::disjoint, Ids::block0, Ids::late,
                  Ids::beyond, Ids::none});
  s.layout = any_layout();
  s.layers = in(1, 2);
  s.layer = in(0, s.layers - 1);
  s.form = one_of({Form::packed, Form::packed, Form::halves, Form::pools, Form::interleaved});
  s.misalign = in(0, 3);
  s.head_pad = in(0, 9);
  s.head_major_selection = chance(2);
  s.garbage_cells = chance(5);
  s.with_lse = !chance(4);
  s.causal = !chance(4);
  s.invariant = chance(2);
  const auto world = static_cast<int>(in(1, 3));
  s.shard = {static_cast<int>(in(0, world - 1)), world};
  s.device_scales = chance(2);
  s.k_scale = one_of({1.0f, 0.25f});
  s.v_scale = one_of({1.0f, 0.5f});
  s.seed = any_seed();
  s.page_seed = any_seed();
  return s;
}

RC_GTEST_PROP(AttendProperty, AnyProblemMeetsTheReferenceAndIgnoresPoison, ()) {
  const AttendSpec spec = any_attend();
  const Outcome outcome = check_attend(target(any_turn()), spec);
  if (!outcome.passed) RC_FAIL(outcome.detail);
}

RC_GTEST_PROP(AttendProperty, PlacementNeverChangesABit, ()) {
  AttendSpec a = any_attend();
  a.garbage_cells = false;  // which cells are garbage depends on the table
  AttendSpec b = a;
  b.layout = any_layout();
  b.page_seed = a.page_seed + 1;
  b.spare_pages = in(0, 9);
  b.batch.spare_columns = other_spare_columns(a.batch);
  b.batch.bound_slack = in(0, 5000);
  b.misalign = in(0, 3);
  b.head_major_selection = !a.head_major_selection;
  b.workspace_cap = one_of<std::size_t>({0, 1 << 16, default_workspace_cap});
  if (a.batch.tokens() == 0) return;
  Judge judge;
  const Target& at = target(any_turn());
  AttendProblem first(at, a, Poison::nan), second(at, b, Poison::huge);
  const AttendOutput x = first.run(judge), y = second.run(judge);
  judge.require(x.out == y.out, "out differs");
  judge.require(x.lse == y.lse, "lse differs");
  if (!judge.passed()) RC_FAIL(judge.outcome().detail);
}

}  // namespace
}  // namespace msa::verify
