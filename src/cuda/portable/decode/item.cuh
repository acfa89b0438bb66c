// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/portable/decode/params.h"

/// \file
/// An item's place in the batch.

namespace msa::cuda::portable::decode {

/// Some rows of one request and KV head.
struct Item {
  __device__ Item(const Params& p, int index) {
    const int pair = p.by_row_groups.quotient(index);
    first_row = (index - pair * p.row_groups) * p.rows;
    rows = min(p.rows, p.m - first_row);
    request = p.by_kv_heads.quotient(pair);
    head = pair - request * p.kv_heads;
    first_token = std::int64_t{request} * p.m + first_row;
  }

  /// Keys that row `row` of the item sees, of a request of `seq_len` keys.
  __device__ std::int32_t visible(const Params& p, std::int32_t seq_len, int row) const {
    if (!p.causal) return seq_len;
    // Pairs that pad a tile belong to no row.
    return max(seq_len - p.m + first_row + min(row, rows - 1) + 1, 0);
  }

  int request;
  std::int64_t first_token;
  int head;
  int first_row;  // of the request
  int rows;
};

}  // namespace msa::cuda::portable::decode
