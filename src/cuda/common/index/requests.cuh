// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/params.h"
#include "cuda/common/index/plan.h"
#include "cuda/common/warp.cuh"

/// \file
/// The units of each request of a window, found from the lengths alone. `Params` are a score
/// kernel's.

namespace msa::cuda {

/// The window's rows of one request.
struct RequestRows {
  std::int64_t first_token = 0;  // of the call
  std::int64_t rows = 0;
  std::int64_t position = 0;  // of the first row
  std::int32_t seq_len = 0;
  std::int64_t units = 0;
};

template <class Params>
__device__ TileRun tiles_of(const Params& p, const RequestRows& r) {
  // A context beyond every block is a fault of the metadata; it must not make more units than the
  // scores have columns.
  return {min(r.position, p.scores.blocks * page_size), p.tile_tokens_log2, p.skip};
}
template <class Params>
__device__ std::int64_t tile_count(const Params& p, std::int64_t rows) {
  return (rows + (1 << p.tile_tokens_log2) - 1) >> p.tile_tokens_log2;
}

/// Of request `index` of the window.
template <class Params>
__device__ RequestRows request_rows(const Params& p, std::int64_t index) {
  RequestRows r;
  if (p.window.decode) {
    r.rows = p.batch.decode_query_len;
    r.first_token = p.window.first_token + index * r.rows;
    const std::int32_t seq_len = p.batch.seq_lens[p.window.first_request + index];
    r.position = seq_len - r.rows;
    r.seq_len = max(seq_len, 0);
    const std::int64_t pages = min(pages_of(r.seq_len), p.scores.blocks);
    r.units = pages > p.skip ? pages : 0;
    return r;
  }
  const std::int64_t first = p.window.first_token - p.batch.decode_tokens;
  const std::int64_t begin = p.batch.cu_seqlens_q[index];
  const std::int64_t from = max(begin, first);
  const std::int64_t to =
      min(std::int64_t{p.batch.cu_seqlens_q[index + 1]}, first + p.window.tokens);
  if (to <= from) return r;
  r.rows = to - from;
  r.first_token = p.batch.decode_tokens + from;
  r.position = p.batch.context_lens[index] + (from - begin);
  r.seq_len = max(p.batch.seq_lens[p.window.first_request + index], 0);
  r.units = tiles_of(p, r).units(tile_count(p, r.rows));
  return r;
}

/// So few requests that one warp counts all units: nobody has to wait for others.
template <class Params>
__device__ bool few_requests(const Params& p) {
  return p.window.requests <= warp_size;
}

/// Counts the units of each bucket of many requests, by the first threads of the CTA; a barrier of
/// the CTA must follow.
template <class Params>
__device__ void count_units(const Params& p, std::int64_t* bucket_units) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= buckets || few_requests(p)) return;
  const std::int64_t requests = p.window.requests, size = (requests + buckets - 1) / buckets;
  std::int64_t units = 0;
  for (std::int64_t i = thread * size; i < min((thread + 1) * size, requests); ++i) {
    units += request_rows(p, i).units;
  }
  bucket_units[thread] = units;
}

}  // namespace msa::cuda
