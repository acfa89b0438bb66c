// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/portable/prefill/prefill.h"

#include "cuda/portable/common/aligned.h"
#include "cuda/portable/prefill/config.h"
#include "cuda/portable/prefill/launch.h"
#include "cuda/portable/prefill/params.h"

namespace msa::cuda::portable::prefill {

void attend(const AttendArgs& a) {
  Params p{};
  static_cast<AttendCall&>(p) = attend_call(a);
  static_cast<Tiling&>(p) =
      Tiling(a.batch.num_actual_tokens, a.batch.num_prefills, p.group, p.topk, max_ids);
  p.kv_aligned = aligned(p.k) && aligned(p.v);
  const std::int64_t items = p.places * p.kv_heads;
  const int device = a.q.device.index;
  switch (a.kv_cache.shape_view().dtype) {
    case DType::bf16:
      return launch_bf16(p, items, device, a.stream);
    case DType::f16:
      return launch_f16(p, items, device, a.stream);
    case DType::e4m3:
      return launch_e4m3(p, items, device, a.stream);
    default:
      return launch_e5m2(p, items, device, a.stream);
  }
}

}  // namespace msa::cuda::portable::prefill
