// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/common/batch.cuh"
#include "cuda/common/scale.cuh"
#include "msa/attend.h"

/// \file
/// A call of attend as its kernels see it.

namespace msa::cuda::sm90 {

/// K or V in memory [pages, Hkv, 128, 128], strides in bytes.
struct HalfView {
  const char* data;
  std::int64_t page, head, token;
};

struct Call {
  CUtensorMap k, v;  // boxes of 128 tokens by 128 bytes

  const std::uint16_t* q;  // [T, Hq, 128] bf16|f16
  std::int64_t q_token, q_head;
  bool q_is_f16;
  bool q_aligned;  // rows start at multiples of 16 bytes

  const std::int32_t* selection;  // [T, Hs, topk]
  std::int64_t selection_token, selection_list, selection_slot;
  int topk;
  int slot_factor;  // row of an id by row_of(), see plan.h
  BatchView batch;
  std::int64_t pages;
  HalfView k_half, v_half;

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

/// Fills `call`; makes the tensor maps.
void fill_call(Call& call, const AttendArgs& args);

}  // namespace msa::cuda::sm90
