// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/sm90/common/call.cuh"

/// \file
/// What the prefill kernel is launched with.

namespace msa::cuda::sm90::prefill {

struct Params : Call {
  std::int64_t tokens;    // of prefill requests and behind them
  std::int64_t places;    // of tiles of one head, see plan.h
  std::int64_t items;     // places · heads
  int padded_group_log2;  // see plan.h
  int tile_tokens;
  int capacity;  // tile_tokens · topk: the longest list
};

}  // namespace msa::cuda::sm90::prefill
