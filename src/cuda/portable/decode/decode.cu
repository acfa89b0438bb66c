// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/portable/decode/decode.h"

#include "cuda/common/devices.h"
#include "cuda/common/workspace.h"
#include "cuda/portable/common/aligned.h"
#include "cuda/portable/decode/launch.h"
#include "cuda/portable/decode/merge.cuh"
#include "cuda/portable/decode/start.h"

namespace msa::cuda::portable::decode {
namespace {

/// Of the workspace.
constexpr std::int64_t alignment = 16;

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
  Params p{};
  static_cast<AttendCall&>(p) = attend_call(a);
  static_cast<Items&>(p) = Items(a, p, division.rows);
  p.kv_aligned = aligned(p.k) && aligned(p.v);
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
