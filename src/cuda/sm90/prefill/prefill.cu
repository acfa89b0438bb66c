// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/prefill/prefill.h"

#include "cuda/sm90/prefill/launch.h"
#include "cuda/sm90/prefill/params.h"
#include "cuda/sm90/prefill/plan.h"

namespace msa::cuda::sm90::prefill {

void attend(const AttendArgs& args) {
  Params p{};
  fill_call(p, args);
  static_cast<Tiling&>(p) =
      Tiling(args.batch.num_actual_tokens, args.batch.num_prefills, p.group, p.topk, max_ids);
  p.items = p.places * p.kv_heads;
  const int device = args.q.device.index;
  switch (args.kv_cache.shape_view().dtype) {
    case DType::bf16:
      return launch_bf16(p, device, args.stream);
    case DType::f16:
      return launch_f16(p, device, args.stream);
    case DType::e4m3:
      return launch_e4m3(p, device, args.stream);
    default:
      return launch_e5m2(p, device, args.stream);
  }
}

}  // namespace msa::cuda::sm90::prefill
