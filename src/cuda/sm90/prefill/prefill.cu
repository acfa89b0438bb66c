// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/prefill/prefill.h"

#include "cuda/sm90/common/devices.h"
#include "cuda/sm90/prefill/launch.h"
#include "cuda/sm90/prefill/params.h"
#include "cuda/sm90/prefill/plan.h"

namespace msa::cuda::sm90::prefill {

Reasons reasons(const AttendArgs& args) {
  if (size_of(args.kv_cache.shape_view().dtype) != 2) {
    return {"the sm90 prefill kernel takes caches of 16-bit elements"};
  }
  Reasons all = device_reasons(args.q.device);
  if (all.empty()) all = cache_reasons(args);
  return all;
}

void attend(const AttendArgs& args) {
  Params p{};
  fill_call(p, args);
  p.tokens = args.batch.num_actual_tokens;
  p.tile_tokens = tile_tokens(p.group, p.topk);
  p.padded_group_log2 = padded_group_log2(p.group);
  p.capacity = p.tile_tokens * p.topk;
  p.places = places(p.tokens, args.batch.num_prefills, p.tile_tokens);
  p.items = p.places * p.kv_heads;
  const int device = args.q.device.index;
  if (args.kv_cache.shape_view().dtype == DType::bf16) {
    launch_bf16(p, device, args.stream);
  } else {
    launch_f16(p, device, args.stream);
  }
}

}  // namespace msa::cuda::sm90::prefill
