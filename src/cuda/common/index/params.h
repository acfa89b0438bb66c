// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/block_order.h"
#include "cuda/common/arithmetic.h"
#include "cuda/common/batch.cuh"

/// \file
/// Scores and lists as the indexer's kernels see them, and what those are launched with that are
/// the same for every device.

namespace msa::cuda {

/// Scores [rows, Hi, blocks], strides in elements.
struct ScoreView {
  float* data;
  std::int64_t token, head, block;
  std::int64_t blocks;
};

/// Lists [rows, Hs, topk], strides in elements.
struct ListsView {
  std::int32_t* data;
  std::int64_t token, list, slot;
  int lists, topk;
};

/// Rows of a call that are scored together: consecutive ones, all of decode requests or none.
struct Window {
  std::int64_t first_token, tokens;
  std::int64_t first_request, requests;  // that have rows in it, or all prefill ones
  bool decode;
};

/// What every score kernel is launched with, beside its keys.
struct ScoreCall {
  const char* q;  // [T, Hi, 128]
  DType q_type;
  std::int64_t q_token, q_head;  // bytes
  bool q_aligned;                // rows start at multiples of 16 bytes
  int heads;                     // Hi
  int head_factor;               // row of a column by row_of()

  BatchView batch;
  std::int64_t pages;
  Window window;
  int tile_tokens_log2;  // of prefill rows
  /// Rows that see so few blocks need no scores.
  std::int64_t skip;

  ScoreView scores;  // row 0 is the window's first token
  Divisor by_ctas;   // divides by the CTAs of a launch for scores

  // Where lists are kept in shared memory instead of scores in the workspace:
  SelectRule rule;
  ListsView selection;  // row 0 is the call's
};

/// Of the select kernel.
struct SelectParams {
  ScoreView scores;  // row 0 is the window's first token
  int heads;
  SelectRule rule;
  ListsView selection;               // row 0 is the window's first token
  const std::int32_t* valid_blocks;  // of the window's tokens; null: from the batch
  BatchView batch;
  Window window;
  bool after_scores;  // the launch before is the score kernel's
};

/// Of the kernel that fills in what no score kernel looks at.
struct FillParams {
  ScoreView scores;  // row 0 is the window's first token
  int heads;
  BatchView batch;
  Window window;
};

}  // namespace msa::cuda
