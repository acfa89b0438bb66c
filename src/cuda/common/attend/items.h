// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/arithmetic.h"
#include "cuda/common/attend/call.h"
#include "cuda/common/host_device.h"

/// \file
/// How decode rows are divided into items, the same on host and device: an item is one KV head of
/// one request, with some of its m query tokens.

namespace msa::cuda {

/// The items of a call.
struct Items {
  Items() = default;
  /// `rows`: of an item, one at least.
  Items(const AttendArgs& args, const AttendCall& call, int rows)
      : m(static_cast<int>(args.batch.decode_query_len)),
        row_factor(cuda::row_factor(call.group)),
        rows(rows),
        row_groups((m + rows - 1) / rows),
        by_kv_heads(static_cast<std::uint32_t>(call.kv_heads)),
        by_row_groups(static_cast<std::uint32_t>(row_groups)),
        capacity(rows * call.topk),
        // Of each item, out alone has 256 bytes: 2^31 of them exceed any device.
        items(static_cast<int>(args.batch.num_decodes * call.kv_heads * row_groups)) {}

  int m = 0;           // query tokens of a request
  int row_factor = 0;  // row of a (row, query head) pair by row_of()
  int rows = 0;        // of an item
  int row_groups = 0;  // items of a request and head
  Divisor by_kv_heads, by_row_groups;
  int capacity = 0;  // rows · topk: the longest list
  int items = 0;
};

/// An item's place in the batch.
struct Item {
  /// Params is an AttendCall and Items.
  template <class Params>
  MSA_HOST_DEVICE Item(const Params& p, int index) {
    const int pair = p.by_row_groups.quotient(index);
    first_row = (index - pair * p.row_groups) * p.rows;
    rows = p.m - first_row < p.rows ? p.m - first_row : p.rows;
    request = p.by_kv_heads.quotient(pair);
    head = pair - request * p.kv_heads;
    first_token = std::int64_t{request} * p.m + first_row;
  }

  /// Keys that row `row` of the item sees, of a request of `seq_len` keys.
  template <class Params>
  MSA_HOST_DEVICE std::int32_t visible(const Params& p, std::int32_t seq_len, int row) const {
    if (!p.causal) return seq_len;
    // Pairs that pad the products belong to no row.
    const int own = row < rows ? row : rows - 1;
    const std::int32_t seen = seq_len - p.m + first_row + own + 1;
    return seen < 0 ? 0 : seen;
  }

  /// Keys of its request.
  template <class Params>
  __device__ std::int32_t seq_len(const Params& p) const {
    return max(p.batch.seq_lens[request], 0);
  }

  int request;
  std::int64_t first_token;
  int head;
  int first_row;  // of the request
  int rows;
};

}  // namespace msa::cuda
