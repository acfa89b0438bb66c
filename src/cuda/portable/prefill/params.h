// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/batch.cuh"
#include "cuda/common/scale.cuh"

/// \file
/// What the prefill kernel is launched with.

namespace msa::cuda::portable::prefill {

/// K or V in memory [pages, Hkv, 128, 128], strides in bytes.
struct HalfView {
  const char* data;
  std::int64_t page, head, token;
};

struct Params {
  const std::uint16_t* q;  // [T, Hq, 128] bf16|f16
  std::int64_t q_token, q_head;
  bool q_is_f16;
  bool q_aligned;  // rows start at multiples of 16 bytes

  HalfView k, v;
  bool kv_aligned;  // rows start at multiples of 16 bytes
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

  std::int64_t tokens;      // of prefill requests and behind them
  std::int64_t places;      // of tiles of one head
  std::int64_t first_item;  // of this launch: an item is a place of a head
  int padded_group_log2;    // see config.h
  int tile_tokens;
  int capacity;  // tile_tokens · topk: the longest list
};

}  // namespace msa::cuda::portable::prefill
