// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/decode/decode.h"

#include "cuda/sm90/decode/config.h"
#include "cuda/sm90/decode/launch.h"
#include "cuda/sm90/decode/params.h"
#include "cuda/sm90/decode/plan.h"

namespace msa::cuda::sm90::decode {
void attend(const AttendArgs& args) {
  Params params{};
  fill_call(params, args);
  const auto m = static_cast<int>(args.batch.decode_query_len);
  static_cast<Items&>(params) = Items(args, params, item_rows(m, params.group, params.topk));
  const int device = args.q.device.index;
  switch (args.kv_cache.shape_view().dtype) {
    case DType::bf16:
      return launch_bf16(params, device, args.stream);
    case DType::f16:
      return launch_f16(params, device, args.stream);
    case DType::e4m3:
      return launch_e4m3(params, device, args.stream);
    default:
      return launch_e5m2(params, device, args.stream);
  }
}

}  // namespace msa::cuda::sm90::decode
