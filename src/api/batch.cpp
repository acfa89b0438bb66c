// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "api/batch.h"

#include <limits>

namespace msa {
namespace {

constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

std::int32_t at(const ConstTensor& t, std::int64_t i) {
  return t.ptr<std::int32_t>()[i * t.stride[0]];
}

/// Reports at most a few of one kind of fault: a broken batch breaks in every row.
class FaultLimit {
 public:
  bool more() { return ++count_ <= 4; }

 private:
  int count_ = 0;
};

}  // namespace

void check_batch(Checker& check, const BatchMetadata& b) {
  const bool decodes_ok = check.range("num_decodes", b.num_decodes, 0, max_int32);
  const bool prefills_ok = check.range("num_prefills", b.num_prefills, 0, max_int32);
  const bool tokens_ok = check.range("num_actual_tokens", b.num_actual_tokens, 0, max_int32);
  // Looked at without decode requests too: plans multiply by it.
  const bool m_ok =
      check.range("decode_query_len", b.decode_query_len, b.num_decodes > 0 ? 1 : 0,
                  max_decode_query_len, " (pass the rows of longer requests as prefill)");
  check.range("max_query_len", b.max_query_len, 0, max_int32);
  check.range("max_seq_len", b.max_seq_len, 0, max_int32);
  if (decodes_ok && tokens_ok && m_ok) {
    check.require(b.num_decode_tokens() <= b.num_actual_tokens, "num_actual_tokens", "is ",
                  b.num_actual_tokens,
                  "; allowed: at least num_decodes · "
                  "decode_query_len = ",
                  b.num_decode_tokens());
  }

  // Where a count is wrong the arrays are looked at all the same, but for the extent it measures.
  const bool requests_ok = decodes_ok && prefills_ok;
  if (requests_ok && b.num_requests() == 0) return;
  const Extent requests = requests_ok ? Extent::at_least("R", b.num_requests()) : Extent::any("R");
  check.tensor("seq_lens", b.seq_lens,
               {.dtypes = {DType::i32}, .extents = {requests}, .dense_last = true});
  const bool table_ok = check.tensor(
      "block_table", b.block_table,
      {.dtypes = {DType::i32}, .extents = {requests, Extent::any("W")}, .dense_last = true});
  if (table_ok && b.block_table.shape[0] > 1) {
    check.require(b.block_table.stride[0] >= b.block_table.shape[1], "block_table",
                  "has row stride ", b.block_table.stride[0], "; allowed: at least its width ",
                  b.block_table.shape[1]);
  }
  if (prefills_ok && b.num_prefills == 0) return;
  check.tensor("cu_seqlens_q", b.cu_seqlens_q,
               {.dtypes = {DType::i32},
                .extents = {prefills_ok ? Extent::at_least("R_p + 1", b.num_prefills + 1)
                                        : Extent::any("R_p + 1")},
                .dense_last = true});
  check.tensor(
      "context_lens", b.context_lens,
      {.dtypes = {DType::i32},
       .extents = {prefills_ok ? Extent::at_least("R_p", b.num_prefills) : Extent::any("R_p")},
       .dense_last = true});
}

Regions with_batch(Regions inputs, const BatchMetadata& b) {
  inputs.push_back({"seq_lens", b.seq_lens});
  inputs.push_back({"block_table", b.block_table});
  inputs.push_back({"cu_seqlens_q", b.cu_seqlens_q});
  inputs.push_back({"context_lens", b.context_lens});
  return inputs;
}

void check_batch_memory(Checker& check, const BatchMetadata& b) {
  if (b.num_decodes > 0) {
    check.require(b.decode_query_len <= b.max_query_len, "max_query_len", "is ", b.max_query_len,
                  "; allowed: at least decode_query_len = ", b.decode_query_len);
  }
  FaultLimit lengths, queries;
  for (std::int64_t r = 0; r < b.num_requests(); ++r) {
    const std::int64_t seq_len = at(b.seq_lens, r);
    if ((seq_len < 0 || seq_len > b.max_seq_len) && lengths.more()) {
      check.fail("seq_lens", cat("holds ", seq_len, " for request ", r,
                                 "; allowed: 0 to max_seq_len = ", b.max_seq_len));
    }
  }
  if (b.num_prefills == 0) return;
  check.require(at(b.cu_seqlens_q, 0) == 0, "cu_seqlens_q", "starts at ", at(b.cu_seqlens_q, 0),
                "; allowed: 0");
  for (std::int64_t p = 0; p < b.num_prefills; ++p) {
    const std::int64_t begin = at(b.cu_seqlens_q, p), end = at(b.cu_seqlens_q, p + 1);
    const std::int64_t length = end - begin;
    if ((length < 0 || length > b.max_query_len) && queries.more()) {
      check.fail("cu_seqlens_q", cat("gives prefill request ", p, " ", length,
                                     " tokens; allowed: 0 to max_query_len = ", b.max_query_len));
    }
    const std::int64_t context = at(b.context_lens, p);
    const std::int64_t seq_len = at(b.seq_lens, b.num_decodes + p);
    if (context != seq_len - length && queries.more()) {
      check.fail("context_lens", cat("holds ", context, " for prefill request ", p,
                                     "; allowed: seq_len − query_len = ", seq_len - length));
    }
  }
  const std::int64_t covered = b.num_decode_tokens() + at(b.cu_seqlens_q, b.num_prefills);
  check.require(covered <= b.num_actual_tokens, "cu_seqlens_q", "ends at ",
                at(b.cu_seqlens_q, b.num_prefills),
                "; allowed: at most T − nd = ", b.num_actual_tokens - b.num_decode_tokens());
}

bool TableCheck::cell(std::int64_t request, std::int64_t column) {
  const ConstTensor& table = batch_.block_table;
  if (column >= table.shape[1]) {
    if (++reported_ <= most_reported) {
      check_.fail("block_table",
                  cat("has ", table.shape[1], " columns, but request ", request, " of ",
                      at(batch_.seq_lens, request), " keys needs column ", column));
    }
    return false;
  }
  const std::int64_t page =
      table.ptr<std::int32_t>()[request * table.stride[0] + column * table.stride[1]];
  if ((page < 0 || page >= pages_) && ++reported_ <= most_reported) {
    check_.fail("block_table", cat("holds page ", page, " in column ", column, " of request ",
                                   request, "; allowed: 0 to ", pages_ - 1));
  }
  return true;
}

void check_visible_cells(Checker& check, const BatchMetadata& b, std::int64_t pages,
                         std::int64_t rank, std::int64_t world) {
  TableCheck table(check, b, pages);
  for (std::int64_t r = 0; r < b.num_requests(); ++r) {
    for (std::int64_t block = rank; block * page_size < at(b.seq_lens, r); block += world) {
      if (!table.cell(r, block / world)) break;
    }
  }
}

}  // namespace msa
