// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/decode/decode.h"

#include "cuda/sm90/decode/config.h"
#include "cuda/sm90/decode/launch.h"
#include "cuda/sm90/decode/params.h"
#include "cuda/sm90/decode/plan.h"

namespace msa::cuda::sm90::decode {
namespace {

Params make_params(const AttendArgs& a) {
  Params p{};
  fill_call(p, a);
  p.m = static_cast<int>(a.batch.decode_query_len);
  p.row_factor = row_factor(p.group);
  p.rows = item_rows(p.m, p.group, p.topk);
  p.row_groups = (p.m + p.rows - 1) / p.rows;
  p.by_kv_heads = Divisor(static_cast<std::uint32_t>(p.kv_heads));
  p.by_row_groups = Divisor(static_cast<std::uint32_t>(p.row_groups));
  p.capacity = p.rows * p.topk;
  // Of each item, out alone has 256 bytes: 2^31 of them exceed any device.
  p.items = static_cast<int>(a.batch.num_decodes * p.kv_heads * p.row_groups);
  return p;
}

}  // namespace

void attend(const AttendArgs& args) {
  Params params = make_params(args);
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
