// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "api/check.h"
#include "msa/layer.h"

namespace msa {
namespace {

using Lengths = std::vector<std::int64_t>;  // query tokens of each request

/// How the requests of a step are divided.
struct Split {
  std::int64_t decodes = 0;   // R_d; kept requests without tokens are padding rows
  std::int64_t prefills = 0;  // R_p
  std::int64_t m = 1;
};

/// Rules 1 to 4: the first request of the prefill part, before a look at empty requests.
std::size_t first_prefill(const Lengths& lengths, std::int64_t threshold) {
  if (threshold <= 1 && *std::max_element(lengths.begin(), lengths.end()) <= threshold) {
    return lengths.size();
  }
  if (lengths[0] > threshold) return 0;
  const auto differs = [&](std::int64_t n) { return n != lengths[0] && n != 0; };
  return static_cast<std::size_t>(std::find_if(lengths.begin(), lengths.end(), differs) -
                                  lengths.begin());
}

/// Tokens a decode request. A batch of padding alone has no first length: a replayed graph's T says
/// how many rows it captured for each request.
std::int64_t decode_query_len(const Lengths& lengths, std::int64_t threshold, std::int64_t tokens) {
  if (threshold <= 1) return 1;
  if (lengths[0] > 0) return lengths[0];
  const auto requests = static_cast<std::int64_t>(lengths.size());
  const std::int64_t longest = std::min<std::int64_t>(threshold, max_decode_query_len);
  const bool uniform = tokens % requests == 0 && tokens / requests <= longest;
  return uniform ? std::max<std::int64_t>(tokens / requests, 1) : 1;
}

Split split_requests(const Lengths& lengths, std::int64_t threshold, std::int64_t tokens) {
  Split split;
  const auto requests = static_cast<std::int64_t>(lengths.size());
  if (requests == 0) return split;
  const auto first_empty = std::find(lengths.begin(), lengths.end(), 0) - lengths.begin();
  const auto end = static_cast<std::int64_t>(first_prefill(lengths, threshold));
  split.decodes = std::min<std::int64_t>(end, first_empty);
  const bool only_padding_follows = std::all_of(lengths.begin() + split.decodes, lengths.end(),
                                                [](std::int64_t n) { return n == 0; });
  if (end > 0 && only_padding_follows) {
    split.m = decode_query_len(lengths, threshold, tokens);
    // T counts the rows of all, some or none of the padding requests; the others are dropped.
    split.decodes = std::min(requests, tokens / split.m);
  } else {
    // Row t of a decode part is request t / m: an empty request among others would shift the rows.
    split.prefills = requests - split.decodes;
    if (split.decodes > 0) split.m = lengths[0];
  }
  return split;
}

void check_query_start_loc(Checker& check, std::span<const std::int32_t> starts,
                           std::int64_t tokens) {
  if (!check.require(!starts.empty(), "query_start_loc",
                     "is empty; expected [R + 1] numbers, the first of them 0")) {
    return;
  }
  check.require(starts[0] == 0, "query_start_loc", "starts at ", starts[0], "; allowed: 0");
  for (std::size_t r = 0; r + 1 < starts.size(); ++r) {
    check.require(starts[r] <= starts[r + 1], "query_start_loc", "falls from ", starts[r], " to ",
                  starts[r + 1], " at request ", r, "; allowed: no decrease");
  }
  check.require(starts.back() <= tokens, "num_actual_tokens", "is ", tokens,
                "; allowed: at least query_start_loc[R] = ", starts.back());
}

void check_step(Checker& check, const StepInputs& step) {
  check.range("num_actual_tokens", step.num_actual_tokens, 0,
              std::numeric_limits<std::int32_t>::max());
  check_query_start_loc(check, step.query_start_loc, step.num_actual_tokens);
  const auto requests = static_cast<std::int64_t>(step.query_start_loc.size() -
                                                  (step.query_start_loc.empty() ? 0 : 1));

  const auto host = step.seq_lens_host;
  check.require(static_cast<std::int64_t>(host.size()) == requests, "seq_lens_host", "has ",
                host.size(), " numbers; expected one for each of the ", requests,
                " requests of query_start_loc");
  for (std::size_t r = 0; r < host.size(); ++r) {
    check.require(host[r] >= 0, "seq_lens_host", "holds ", host[r], " for request ", r,
                  "; allowed: 0 or more");
  }
  const std::int64_t longest = host.empty() ? 0 : *std::max_element(host.begin(), host.end());
  check.require(step.max_seq_len == 0 || step.max_seq_len >= longest, "max_seq_len", "is ",
                step.max_seq_len,
                "; allowed: 0 or at least the longest of "
                "seq_lens_host, ",
                longest);
  if (requests > 0) {
    check.tensor(
        "seq_lens", step.seq_lens,
        {.dtypes = {DType::i32}, .extents = {Extent::exactly("R", requests)}, .dense_last = true});
    check.tensor("block_table", step.block_table,
                 {.dtypes = {DType::i32},
                  .extents = {Extent::exactly("R", requests), Extent::any("W")},
                  .dense_last = true});
  }
  if (step.slot_mapping.given()) {
    check.tensor("slot_mapping", step.slot_mapping,
                 {.dtypes = {DType::i64},
                  .extents = {Extent::at_least("T", step.num_actual_tokens)},
                  .touched = step.num_actual_tokens > 0});
  }
}

Lengths query_lengths(std::span<const std::int32_t> starts) {
  Lengths lengths(starts.size() - 1);
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    lengths[r] = std::int64_t{starts[r + 1]} - starts[r];
  }
  return lengths;
}

/// Requests [0, count) of a tensor with one row a request; of one that was left out, nothing.
ConstTensor first_requests(const ConstTensor& tensor, std::int64_t count) {
  return tensor.rank > 0 ? tensor.narrow(0, 0, count) : tensor;
}

}  // namespace

MetadataBuilder::MetadataBuilder(std::int64_t decode_threshold)
    : decode_threshold_(decode_threshold) {
  Checker check("MetadataBuilder");
  check.range("decode_threshold", decode_threshold, 0, std::numeric_limits<std::int32_t>::max());
  check.raise();
}

SparseMetadata MetadataBuilder::build(const StepInputs& step) const {
  Checker check("MetadataBuilder");
  check_step(check, step);
  check.raise();

  const Lengths lengths = query_lengths(step.query_start_loc);
  const Split split = split_requests(lengths, decode_threshold_, step.num_actual_tokens);
  check.require(split.m <= max_decode_query_len, "query_start_loc", "gives each decode request ",
                split.m, " tokens; allowed: 1 to ", max_decode_query_len,
                ": pass the rows as prefill, with a decode threshold of "
                "at most ",
                max_decode_query_len, " instead of ", decode_threshold_);
  check.raise();

  SparseMetadata md;
  md.num_actual_tokens = step.num_actual_tokens;
  md.num_decodes = split.decodes;
  md.num_prefills = split.prefills;
  md.num_decode_tokens = split.decodes * split.m;
  md.slot_mapping = step.slot_mapping;

  BatchMetadata& batch = md.batch;
  const std::int64_t requests = split.decodes + split.prefills;
  batch.seq_lens = first_requests(step.seq_lens, requests);
  batch.block_table = first_requests(step.block_table, requests);
  batch.num_decodes = split.decodes;
  batch.num_prefills = split.prefills;
  batch.decode_query_len = split.m;
  batch.num_actual_tokens = step.num_actual_tokens;
  batch.max_query_len = split.decodes > 0 ? split.m : 0;
  batch.max_seq_len = step.max_seq_len;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    batch.max_query_len = std::max(batch.max_query_len, lengths[r]);
    batch.max_seq_len = std::max<std::int64_t>(batch.max_seq_len, step.seq_lens_host[r]);
  }
  if (split.prefills == 0) return md;

  md.cu_seqlens_q_.push_back(0);
  for (auto r = static_cast<std::size_t>(split.decodes); r < lengths.size(); ++r) {
    const auto length = static_cast<std::int32_t>(lengths[r]);
    md.cu_seqlens_q_.push_back(md.cu_seqlens_q_.back() + length);
    md.context_lens_.push_back(step.seq_lens_host[r] - length);
  }
  md.point_at_storage();
  return md;
}

void SparseMetadata::point_at_storage() {
  const auto count = static_cast<std::int64_t>(context_lens_.size());
  batch.cu_seqlens_q = ConstTensor::dense(cu_seqlens_q_.data(), DType::i32, {count + 1});
  batch.context_lens = ConstTensor::dense(context_lens_.data(), DType::i32, {count});
}

SparseMetadata::SparseMetadata(const SparseMetadata& other)
    : num_actual_tokens(other.num_actual_tokens),
      num_decodes(other.num_decodes),
      num_prefills(other.num_prefills),
      num_decode_tokens(other.num_decode_tokens),
      slot_mapping(other.slot_mapping),
      batch(other.batch),
      cu_seqlens_q_(other.cu_seqlens_q_),
      context_lens_(other.context_lens_) {
  // An engine may have put arrays of its own (on a device, say) in the place of these.
  const bool own = !cu_seqlens_q_.empty() && batch.cu_seqlens_q.data == other.cu_seqlens_q_.data();
  if (own) point_at_storage();
}

SparseMetadata& SparseMetadata::operator=(const SparseMetadata& other) {
  if (this != &other) *this = SparseMetadata(other);
  return *this;
}

}  // namespace msa
