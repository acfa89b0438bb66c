// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/batch.cuh"
#include "cuda/common/scale.cuh"
#include "msa/attend.h"

/// \file
/// A call of attend as every backend's kernels see it.

namespace msa::cuda {

/// K or V in memory [pages, Hkv, 128, 128], strides in bytes.
struct HalfView {
  const char* data;
  std::int64_t page, head, token;
};

struct AttendCall {
  const std::uint16_t* q;  // [T, Hq, 128] bf16|f16
  std::int64_t q_token, q_head;
  bool q_is_f16;
  bool q_aligned;  // rows start at multiples of 16 bytes

  HalfView k, v;
  std::int64_t pages;

  const std::int32_t* selection;  // [T, Hs, topk]
  std::int64_t selection_token, selection_list, selection_slot;
  int topk;
  int slot_factor;  // row of an id by row_of()
  BatchView batch;

  std::uint16_t* out;  // [T, Hq, 128] bf16|f16
  std::int64_t out_token, out_head;
  bool out_is_f16;
  bool out_aligned;  // rows start at multiples of 16 bytes
  float* lse;        // [T, Hq] or null
  std::int64_t lse_token, lse_head;

  float softmax_scale;
  ScaleView k_scale, v_scale;
  bool causal;
  int rank, world;

  int kv_heads;
  int group;  // G
};

/// The call of `args`.
AttendCall attend_call(const AttendArgs& args);

}  // namespace msa::cuda
