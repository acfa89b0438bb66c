// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/batch.cuh"
#include "cuda/common/scale.cuh"
#include "cuda/portable/decode/plan.h"
#include "cuda/sm90/common/arithmetic.h"

/// \file
/// What the decode kernels are launched with.

namespace msa::cuda::portable::decode {

using sm90::Divisor;

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
  bool kv_aligned;  // rows of K and V start at multiples of 16 bytes
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
  int group;       // G
  int m;           // query tokens of a request
  int row_factor;  // row of a pair by row_of()
  int rows;        // of an item
  int row_groups;  // items of a request and head
  Divisor by_kv_heads, by_row_groups;
  int capacity;  // rows · topk: the longest list
  int items;
  int splits;       // CTAs of an item
  int units;        // places of an item's partial results
  int share;        // units of a CTA, or 0: by the item's number of units
  char* workspace;  // [items][item_bytes(units)] where splits > 1
};

/// Units of a CTA, for an item of `units`. Of one row the host knows them: lists are as long as
/// topk but where the context is short. Rows with common pages have shorter lists than the longest.
MSA_HOST_DEVICE inline int share_of_item(const Params& p, int units) {
  return p.share != 0 ? p.share : share_of(units, p.splits);
}

}  // namespace msa::cuda::portable::decode
