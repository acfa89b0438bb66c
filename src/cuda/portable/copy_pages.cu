// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "common/step.h"
#include "cuda/common/launch.h"
#include "cuda/common/warp.cuh"
#include "cuda/portable/operators.h"

/// \file
/// copy_pages: one warp a row (one token of one head) of a page, in the largest pieces that the
/// addresses allow.

namespace msa::cuda::portable {
namespace {

struct CopyParams {
  explicit CopyParams(const CopyPagesArgs& args);

  struct Side {
    explicit Side(const ConstTensor& t);
    char* data;
    std::int64_t pages;
    std::int64_t page, head, token;  // strides in bytes
  };
  Side src, dst;
  std::int64_t heads;
  std::int64_t row_bytes;
  const std::int64_t* pairs;  // [N, 2]
  std::int64_t pair_step, side_step;
  std::int64_t rows;  // N · heads · 128
};

CopyParams::Side::Side(const ConstTensor& t)
    : data(const_cast<char*>(t.ptr<char>())), pages(t.shape[0]) {
  page = step_bytes(t, 0);
  head = t.rank == 4 ? step_bytes(t, 1) : 0;
  token = step_bytes(t, t.rank - 2);
}

CopyParams::CopyParams(const CopyPagesArgs& args)
    : src(args.src),
      dst(ConstTensor(args.dst)),
      heads(args.src.rank == 4 ? args.src.shape[1] : 1),
      row_bytes(args.src.shape[args.src.rank - 1] *
                static_cast<std::int64_t>(size_of(args.src.dtype))),
      pairs(args.pairs.ptr<std::int64_t>()),
      pair_step(args.pairs.stride[0]),
      side_step(args.pairs.stride[1]),
      rows(args.pairs.shape[0] * heads * page_size) {}

/// Whether every row of both sides starts at a multiple of `bytes`.
bool divides(const CopyParams& p, std::uintptr_t bytes) {
  std::uintptr_t all = static_cast<std::uintptr_t>(p.row_bytes);
  for (const CopyParams::Side& s : {p.src, p.dst}) {
    all |= reinterpret_cast<std::uintptr_t>(s.data);
    for (std::int64_t step : {s.page, s.head, s.token}) all |= static_cast<std::uintptr_t>(step);
  }
  return all % bytes == 0;
}

constexpr int row_warps = 8;  // rows of a CTA

template <class Piece>
__global__ __launch_bounds__(row_warps* warp_size) void copy_kernel(const CopyParams p) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t step = std::int64_t{gridDim.x} * row_warps;
  const std::int64_t pieces = p.row_bytes / static_cast<std::int64_t>(sizeof(Piece));
  for (std::int64_t r = std::int64_t{blockIdx.x} * row_warps + warp; r < p.rows; r += step) {
    const std::int64_t token = r % page_size, head = r / page_size % p.heads;
    const std::int64_t* pair = p.pairs + r / page_size / p.heads * p.pair_step;
    const std::int64_t from = pair[0], to = pair[p.side_step];
    if (from < 0 || from >= p.src.pages || to < 0 || to >= p.dst.pages) continue;
    const auto* source = reinterpret_cast<const Piece*>(p.src.data + from * p.src.page +
                                                        head * p.src.head + token * p.src.token);
    auto* target = reinterpret_cast<Piece*>(p.dst.data + to * p.dst.page + head * p.dst.head +
                                            token * p.dst.token);
    for (std::int64_t i = lane; i < pieces; i += warp_size) target[i] = source[i];
  }
}

template <class Piece>
void launch_copy(const CopyPagesArgs& args, const CopyParams& params) {
  launch("copy_pages", copy_kernel<Piece>, (params.rows + row_warps - 1) / row_warps,
         row_warps * warp_size, args.stream, params);
}

}  // namespace

void copy_pages(const CopyPagesArgs& args) {
  if (args.pairs.numel() == 0 || args.src.numel() == 0 || args.dst.numel() == 0) return;
  const CopyParams params(args);
  if (divides(params, 16)) return launch_copy<uint4>(args, params);
  if (divides(params, 4)) return launch_copy<std::uint32_t>(args, params);
  if (divides(params, 2)) return launch_copy<std::uint16_t>(args, params);
  launch_copy<std::uint8_t>(args, params);
}

}  // namespace msa::cuda::portable
