// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/parts.h"
#include "cuda/portable/decode/decode.h"
#include "cuda/portable/operators.h"
#include "cuda/portable/prefill/prefill.h"

namespace msa::cuda::portable {

std::size_t workspace_size(const AttendArgs& args) { return decode::workspace_size(args); }

/// The batch's decode rows, then its prefill rows.
void attend(const AttendArgs& args) {
  if (args.batch.num_decodes > 0) decode::attend(args);
  if (args.batch.num_actual_tokens > args.batch.num_decode_tokens()) {
    prefill::attend(prefill_part(args));
  }
}

}  // namespace msa::cuda::portable
