// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "reference/reference.h"

namespace msa::reference {
namespace {

std::int64_t load_i32(const ConstTensor& t, std::int64_t offset) {
  std::int32_t x;
  std::memcpy(&x, static_cast<const char*>(t.data) + offset * 4, sizeof x);
  return x;
}

}  // namespace

RequestRows request_rows(const BatchMetadata& batch, std::int64_t request) {
  RequestRows r;
  r.seq_len = load_i32(batch.seq_lens, request * batch.seq_lens.stride[0]);
  const std::int64_t m = batch.decode_query_len;
  if (request < batch.num_decodes) {
    r.begin = request * m;
    r.end = r.begin + m;
    r.first_position = r.seq_len - m;
    return r;
  }
  const std::int64_t p = request - batch.num_decodes;
  const std::int64_t step = batch.cu_seqlens_q.stride[0];
  r.begin = batch.num_decode_tokens() + load_i32(batch.cu_seqlens_q, p * step);
  r.end = batch.num_decode_tokens() + load_i32(batch.cu_seqlens_q, (p + 1) * step);
  r.first_position = load_i32(batch.context_lens, p * batch.context_lens.stride[0]);
  return r;
}

std::vector<Row> token_rows(const BatchMetadata& batch) {
  std::vector<Row> rows(static_cast<std::size_t>(batch.num_actual_tokens));
  for (std::int64_t r = 0; r < batch.num_requests(); ++r) {
    const RequestRows request = request_rows(batch, r);
    const std::int64_t end = std::min(request.end, batch.num_actual_tokens);
    for (std::int64_t t = request.begin; t < end; ++t) {
      rows[t] = {r, request.first_position + (t - request.begin), request.seq_len};
    }
  }
  return rows;
}

std::int64_t table_entry(const BatchMetadata& batch, std::int64_t request, std::int64_t column,
                         std::int64_t pages) {
  if (column < 0 || column >= batch.block_table.shape[1]) return -1;
  const std::int64_t page = load_i32(batch.block_table, request * batch.block_table.stride[0] +
                                                            column * batch.block_table.stride[1]);
  return page >= 0 && page < pages ? page : -1;
}

std::vector<std::int32_t> valid_blocks(const BatchMetadata& batch) {
  std::vector<std::int32_t> valid;
  for (const Row& row : token_rows(batch)) {
    valid.push_back(row.position < 0 ? 0 : static_cast<std::int32_t>(row.position / page_size + 1));
  }
  return valid;
}

}  // namespace msa::reference
