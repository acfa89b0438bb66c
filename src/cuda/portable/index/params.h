// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/index/params.h"
#include "cuda/sm90/common/arithmetic.h"

/// \file
/// What the score kernel is launched with.

namespace msa::cuda::portable::index {

struct ScoreParams {
  const char* q;  // [T, Hi, 128]
  DType q_type;
  std::int64_t q_token, q_head;  // bytes
  bool q_aligned;                // rows start at multiples of 16 bytes
  int heads;                     // Hi
  int head_factor;               // row of a column by row_of()

  const char* keys;                  // [pages, 128, 128]
  std::int64_t key_page, key_token;  // bytes
  bool keys_aligned;                 // rows start at multiples of 16 bytes
  std::int64_t pages;

  BatchView batch;
  Window window;
  int tile_tokens_log2;  // of prefill rows
  /// Rows that see so few blocks need no scores.
  std::int64_t skip;

  ScoreView scores;       // row 0 is the window's first token
  sm90::Divisor by_ctas;  // divides by the CTAs of a launch for scores

  // Where lists are kept in shared memory instead of scores in the workspace:
  SelectRule rule;
  ListsView selection;  // row 0 is the call's
};

}  // namespace msa::cuda::portable::index
