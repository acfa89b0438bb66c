// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "msa/export.h"
#include "msa/tensor.h"

/// \file
/// merge_states: one attention result from two over disjoint keys.

namespace msa {

/// Arguments of merge_states. `out` and `lse` may be `out_a` and `lse_a` themselves (in place).
struct MergeArgs {
  ConstTensor out_a;  // [T, H, 128] bf16|f16|f32, last stride 1
  ConstTensor lse_a;  // [T, H] f32
  ConstTensor out_b;  // [T, H, 128], of out_a's type
  ConstTensor lse_b;  // [T, H] f32
  Tensor out;         // [T, H, 128], of out_a's type
  Tensor lse;         // [T, H] f32
  Stream stream;      ///< where the call runs
};

/// `out = (exp(lse_a) · out_a + exp(lse_b) · out_b) / (exp(lse_a) + exp(lse_b))`, `lse` the log of
/// the divisor. A side with LSE −inf is an exact no-op (the other side's bits are kept, whatever
/// that side's values); both −inf give (0, −inf); NaN propagates.
///
/// \throws Error listing every argument that is wrong; nothing is written then.
/// Source: contract section 5.
MSA_API void merge_states(const MergeArgs& args);

}  // namespace msa
