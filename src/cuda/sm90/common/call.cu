// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/common/call.cuh"

#include "cuda/common/tensor_map.h"
#include "cuda/sm90/common/reasons.h"

namespace msa::cuda::sm90 {

void fill_call(Call& call, const AttendArgs& args) {
  static_cast<AttendCall&>(call) = attend_call(args);
  call.k_map = tile_map("attend", args.kv_cache.k_view());
  call.v_map = tile_map("attend", args.kv_cache.v_view());
}

Reasons reasons(const AttendArgs& args) {
  Reasons all = tensor_map_reasons("K", args.kv_cache.k_view());
  const Reasons v = tensor_map_reasons("V", args.kv_cache.v_view());
  all.insert(all.end(), v.begin(), v.end());
  return all;
}

}  // namespace msa::cuda::sm90
