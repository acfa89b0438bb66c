// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/portable/decode/decode.h"

#include "common/step.h"
#include "cuda/common/devices.h"
#include "cuda/common/workspace.h"
#include "cuda/portable/decode/launch.h"
#include "cuda/portable/decode/merge.cuh"
#include "cuda/portable/decode/start.h"
#include "cuda/sm90/common/rows.h"

namespace msa::cuda::portable::decode {
namespace {

/// Of the workspace.
constexpr std::int64_t alignment = 16;

HalfView half_view(const ConstTensor& t) {
  return {t.ptr<char>(), step_bytes(t, 0), step_bytes(t, 1), step_bytes(t, 2)};
}

bool is_aligned(const HalfView& v) {
  return (reinterpret_cast<std::uintptr_t>(v.data) | static_cast<std::uintptr_t>(v.page) |
          static_cast<std::uintptr_t>(v.head) | static_cast<std::uintptr_t>(v.token)) %
             16 ==
         0;
}

int multiprocessors(int device) {
  static DeviceNotes<int> notes;
  return notes.of(device, [](int index) {
    int count = 0;
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, index), "attend",
          "cudaDeviceGetAttribute");
    return count;
  });
}

/// How a call is divided: sizes alone, so that the workspace can be asked for without the rest.
struct Division {
  explicit Division(const AttendArgs& a) {
    const std::int64_t kv_heads = a.kv_cache.shape_view().shape[1];
    if (a.batch.num_decodes == 0 || kv_heads == 0) return;
    const int m = static_cast<int>(a.batch.decode_query_len);
    const int group = static_cast<int>(a.q.shape[1] / kv_heads);
    const int topk = static_cast<int>(a.selection.shape[2]);
    rows = item_rows(m, group, topk);
    row_groups = ceil_div(m, rows);
    capacity = rows * topk;
    tiles = tiles_of(rows * group);
    items = a.batch.num_decodes * kv_heads * row_groups;
    units = ceil_div(capacity, unit_pages);
    splits = splits_of(items, units, ctas_per_sm * multiprocessors(a.q.device.index));
    if (splits > 1 && bytes() > static_cast<std::int64_t>(a.workspace_cap)) splits = 1;
  }

  std::int64_t bytes() const {
    return splits == 1 ? 0 : split_bytes(items, units, tiles) + alignment;
  }

  int rows = 0, row_groups = 0, capacity = 0, tiles = 1, units = 0, splits = 1;
  std::int64_t items = 0;
};

Params make_params(const AttendArgs& a, const Division& division) {
  const ConstTensor& cache = a.kv_cache.shape_view();
  Params p{};
  p.q = a.q.ptr<std::uint16_t>();
  p.q_token = a.q.stride[0];
  p.q_head = a.q.stride[1];
  p.q_is_f16 = a.q.dtype == DType::f16;
  p.q_aligned = sm90::aligned_rows(a.q);
  p.k = half_view(a.kv_cache.k_view());
  p.v = half_view(a.kv_cache.v_view());
  p.kv_aligned = is_aligned(p.k) && is_aligned(p.v);
  p.pages = cache.shape[0];

  p.selection = a.selection.ptr<std::int32_t>();
  p.selection_token = a.selection.stride[0];
  p.selection_list = a.selection.shape[1] == 1 ? 0 : a.selection.stride[1];
  p.selection_slot = a.selection.stride[2];
  p.topk = static_cast<int>(a.selection.shape[2]);
  p.slot_factor = sm90::row_factor(p.topk);
  p.batch = BatchView(a.batch);

  p.out = a.out.ptr<std::uint16_t>();
  p.out_token = a.out.stride[0];
  p.out_head = a.out.stride[1];
  p.out_is_f16 = a.out.dtype == DType::f16;
  p.out_aligned = sm90::aligned_rows(a.out);
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
  p.m = static_cast<int>(a.batch.decode_query_len);
  p.row_factor = sm90::row_factor(p.group);
  p.rows = division.rows;
  p.row_groups = division.row_groups;
  p.by_kv_heads = Divisor(static_cast<std::uint32_t>(p.kv_heads));
  p.by_row_groups = Divisor(static_cast<std::uint32_t>(p.row_groups));
  p.capacity = division.capacity;
  // Of each item, out alone has 256 bytes: 2^31 of them exceed any device.
  p.items = static_cast<int>(division.items);
  p.splits = division.splits;
  p.units = division.units;
  p.share = p.rows == 1 ? share_of(p.units, p.splits) : 0;
  p.workspace = p.splits > 1 ? aligned_to<char>(alignment, a.workspace.data) : nullptr;
  return p;
}

template <int tiles>
void launch_merge(const Params& p, Stream stream) {
  const std::int64_t pairs = std::int64_t{p.items} * p.rows * p.group;
  start(merge_kernel<tiles>, (pairs + merge_warps - 1) / merge_warps, 32 * merge_warps, 0, stream,
        p);
}

}  // namespace

void attend(const AttendArgs& args) {
  const Division division(args);
  if (division.items == 0) return;
  const Params params = make_params(args, division);
  switch (args.kv_cache.shape_view().dtype) {
    case DType::bf16:
      launch_bf16(params, division.tiles, args.stream);
      break;
    case DType::f16:
      launch_f16(params, division.tiles, args.stream);
      break;
    case DType::e4m3:
      launch_e4m3(params, division.tiles, args.stream);
      break;
    default:
      launch_e5m2(params, division.tiles, args.stream);
  }
  if (division.splits == 1) return;
  division.tiles == 1 ? launch_merge<1>(params, args.stream) : launch_merge<2>(params, args.stream);
}

std::size_t workspace_size(const AttendArgs& args) {
  return static_cast<std::size_t>(Division(args).bytes());
}

}  // namespace msa::cuda::portable::decode
