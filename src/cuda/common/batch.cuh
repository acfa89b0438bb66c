// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/metadata.h"

/// \file
/// The batch in device memory: which request a token row belongs to and what it sees.

namespace msa::cuda {

/// BatchMetadata as plain pointers; the i32 arrays are dense, the table has a row stride.
struct BatchView {
  BatchView() = default;
  explicit BatchView(const BatchMetadata& b)
      : seq_lens(b.seq_lens.ptr<std::int32_t>()),
        table(b.block_table.ptr<std::int32_t>()),
        cu_seqlens_q(b.cu_seqlens_q.ptr<std::int32_t>()),
        context_lens(b.context_lens.ptr<std::int32_t>()),
        table_row(b.block_table.stride[0]),
        table_width(b.block_table.shape[1]),
        decodes(b.num_decodes),
        prefills(b.num_prefills),
        decode_tokens(b.num_decode_tokens()),
        decode_query_len(b.decode_query_len) {}

  const std::int32_t* seq_lens = nullptr;      // [R]
  const std::int32_t* table = nullptr;         // [R, W]
  const std::int32_t* cu_seqlens_q = nullptr;  // [R_p + 1]
  const std::int32_t* context_lens = nullptr;  // [R_p]
  std::int64_t table_row = 0;
  std::int64_t table_width = 0;
  std::int64_t decodes = 0;
  std::int64_t prefills = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t decode_query_len = 1;
};

/// A token row's place.
struct RowPlace {
  std::int64_t request = 0;
  std::int64_t visible = 0;  // keys at positions up to the row's own; 0 for a row of no request
  std::int64_t seq_len = 0;  // of its request
};

/// The first prefill request that ends past prefill token `i`, or `prefills`.
__device__ inline std::int64_t find_prefill(const BatchView& batch, std::int64_t i) {
  std::int64_t low = 0, high = batch.prefills;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (batch.cu_seqlens_q[middle + 1] > i) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// Where token row `token` sits. Metadata that contradicts itself leads to no access out of range.
__device__ inline RowPlace find_row(const BatchView& batch, std::int64_t token) {
  std::int64_t request, position;
  if (token < batch.decode_tokens) {
    request = token / batch.decode_query_len;
    position = batch.seq_lens[request] - batch.decode_query_len + token % batch.decode_query_len;
  } else {
    const std::int64_t i = token - batch.decode_tokens;
    const std::int64_t p = find_prefill(batch, i);
    if (p == batch.prefills || batch.cu_seqlens_q[p] > i) return {};
    request = batch.decodes + p;
    position = batch.context_lens[p] + (i - batch.cu_seqlens_q[p]);
  }
  const std::int64_t seq_len = max(batch.seq_lens[request], 0);
  return {request, min(max(position + 1, std::int64_t{0}), seq_len), seq_len};
}

/// The page in the table's cell; −1 where the cell does not exist or names none of `pages` pages.
__device__ inline std::int64_t find_page(const BatchView& batch, std::int64_t request,
                                         std::int64_t column, std::int64_t pages) {
  if (column >= batch.table_width) return -1;
  const std::int64_t page = batch.table[request * batch.table_row + column];
  return page < pages ? max(page, std::int64_t{-1}) : -1;
}

}  // namespace msa::cuda
