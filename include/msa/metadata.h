// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/tensor.h"

/// \file
/// The batch of one step, decode requests first.

namespace msa {

/// What one step computes. The first `num_decode_tokens()` tokens belong to `num_decodes` requests
/// of exactly `decode_query_len` (m) query tokens each; the rest to `num_prefills` requests of any
/// lengths. Symbols of the shapes: T tokens, R = R_d + R_p requests, W columns of the table.
///
/// Decode token t of request r = t / m sits at position seq_len − m + (t mod m), prefill token i of
/// a request at context_len + i. A row sees max(position + 1, 0) keys.
///
/// Tokens that no request covers (cu_seqlens_q[R_p] < T − nd) are padding: empty rows. Nothing is
/// assumed of table entries at or past ceil(seq_len / 128). The i32 arrays need only 4-byte
/// alignment.
struct BatchMetadata {
  ConstTensor seq_lens;      // [R] i32: keys in the cache, this step's tokens included; 0 = padding
  ConstTensor block_table;   // [R, W] i32: logical page → physical page; row stride ≥ W
  ConstTensor cu_seqlens_q;  // [R_p + 1] i32, starts at 0; not needed where R_p = 0
  ConstTensor context_lens;  // [R_p] i32: seq_len − query_len; not needed where R_p = 0

  std::int64_t num_decodes = 0;        ///< R_d
  std::int64_t num_prefills = 0;       ///< R_p
  std::int64_t decode_query_len = 1;   ///< m, 1 to 16; without decode requests 0 too
  std::int64_t num_actual_tokens = 0;  ///< T: rows ≥ T of q, out and the selection are not touched
  std::int64_t max_query_len = 0;      ///< upper bound of any request's query tokens
  std::int64_t max_seq_len = 0;        ///< upper bound of any request's keys

  /// R.
  constexpr std::int64_t num_requests() const { return num_decodes + num_prefills; }
  /// nd.
  constexpr std::int64_t num_decode_tokens() const { return num_decodes * decode_query_len; }
};

}  // namespace msa
