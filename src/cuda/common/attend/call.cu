// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/attend/call.h"

#include "common/step.h"
#include "cuda/common/arithmetic.h"
#include "cuda/common/rows.h"

namespace msa::cuda {
namespace {

HalfView half_view(const ConstTensor& t) {
  return {t.ptr<char>(), step_bytes(t, 0), step_bytes(t, 1), step_bytes(t, 2)};
}

}  // namespace

AttendCall attend_call(const AttendArgs& a) {
  const ConstTensor& cache = a.kv_cache.shape_view();
  AttendCall p{};
  p.q = a.q.ptr<std::uint16_t>();
  p.q_token = a.q.stride[0];
  p.q_head = a.q.stride[1];
  p.q_is_f16 = a.q.dtype == DType::f16;
  p.q_aligned = aligned_rows(a.q);

  p.k = half_view(a.kv_cache.k_view());
  p.v = half_view(a.kv_cache.v_view());
  p.pages = cache.shape[0];

  p.selection = a.selection.ptr<std::int32_t>();
  p.selection_token = a.selection.stride[0];
  p.selection_list = a.selection.shape[1] == 1 ? 0 : a.selection.stride[1];
  p.selection_slot = a.selection.stride[2];
  p.topk = static_cast<int>(a.selection.shape[2]);
  p.slot_factor = row_factor(p.topk);
  p.batch = BatchView(a.batch);

  p.out = a.out.ptr<std::uint16_t>();
  p.out_token = a.out.stride[0];
  p.out_head = a.out.stride[1];
  p.out_is_f16 = a.out.dtype == DType::f16;
  p.out_aligned = aligned_rows(a.out);
  p.lse = a.lse.given() ? a.lse.ptr<float>() : nullptr;
  p.lse_token = a.lse.stride[0];
  p.lse_head = a.lse.stride[1];

  p.softmax_scale = a.softmax_scale;
  p.k_scale = ScaleView(a.k_scale);
  p.v_scale = ScaleView(a.v_scale);
  p.causal = a.causal;
  p.rank = a.kv_shard.rank;
  p.world = a.kv_shard.world;
  p.kv_heads = static_cast<int>(cache.shape[1]);
  p.group = static_cast<int>(a.q.shape[1] / cache.shape[1]);
  return p;
}

}  // namespace msa::cuda
