// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/attend.h"

/// \file
/// Decode-first batches, whose parts have kernels of their own.

namespace msa::cuda {

/// The prefill rows of a batch as a call of their own.
inline AttendArgs prefill_part(AttendArgs a) {
  const std::int64_t decoded = a.batch.num_decode_tokens();
  const std::int64_t tokens = a.batch.num_actual_tokens - decoded;
  const auto skip = [&](auto& tensor) { tensor = tensor.narrow(0, decoded, tokens); };
  skip(a.q);
  skip(a.selection);
  skip(a.out);
  if (a.lse.given()) skip(a.lse);
  for (ConstTensor* t : {&a.batch.seq_lens, &a.batch.block_table}) {
    *t = t->narrow(0, a.batch.num_decodes, a.batch.num_prefills);
  }
  a.batch.num_decodes = 0;
  a.batch.num_actual_tokens = tokens;
  return a;
}

}  // namespace msa::cuda
