// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "draw.h"
#include "verify/write_cache_problem.h"

namespace msa::verify {
namespace {

using namespace properties;

WriteSpec any_write() {
  WriteSpec s;
  s.hkv = in(1, 3);
  s.hq = s.hkv * in(1, 4);
  s.hi = in(0, 3);
  s.tokens = in(0, 20);
  s.insert = chance(3);
  s.main_part = !(s.insert && s.hi > 0 && chance(3));
  s.type = one_of({DType::bf16, DType::f16});
  s.kv = one_of({DType::bf16, DType::f16, DType::e4m3, DType::e5m2});
  s.index = one_of({DType::bf16, DType::e4m3});
  s.index_q_as_input = chance(2);
  s.weights = one_of({DType::bf16, DType::f16, DType::f32});
  s.cos_sin = one_of({DType::bf16, DType::f16, DType::f32});
  s.layout = any_layout();
  s.split_views = chance(4);
  s.layers = in(1, 2);
  s.layer = in(0, s.layers - 1);
  s.k_scale = one_of({1.0f, 0.25f, 3.0f});
  s.v_scale = one_of({1.0f, 0.5f, 7.0f});
  s.device_scales = chance(2);
  s.misalign = in(0, 3);
  s.pad = in(0, 9);
  s.index_pad = in(0, 9);
  s.skips = !chance(4);
  s.seed = any_seed();
  s.slot_seed = any_seed();
  return s;
}

RC_GTEST_PROP(WriteCacheProperty, AnyCallMeetsTheReferenceAndWritesNothingElse, ()) {
  const Outcome outcome = check_write(target(any_turn()), any_write());
  if (!outcome.passed) RC_FAIL(outcome.detail);
}

}  // namespace
}  // namespace msa::verify
