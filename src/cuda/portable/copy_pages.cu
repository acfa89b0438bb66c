// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "common/step.h"
#include "cuda/common/launch.h"
#include "cuda/portable/operators.h"

/// \file
/// copy_pages: one CTA some rows (tokens of one head) of a page, in the largest pieces that the
/// addresses allow, four of a thread under way at once.

namespace msa::cuda::portable {
namespace {

constexpr int threads = 256;
constexpr int pieces_under_way = 4;
/// Of a CTA: one round of its threads in pieces of 16 bytes.
constexpr std::int64_t chunk_bytes = std::int64_t{threads} * pieces_under_way * 16;

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
  std::int64_t row_bytes;     // a power of two
  const std::int64_t* pairs;  // [N, 2]
  std::int64_t pair_step, side_step;
  std::int64_t chunk_rows;  // a power of two: a chunk lies in one page
  std::int64_t chunks;      // N · heads · 128 / chunk_rows
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
      chunk_rows(std::min<std::int64_t>(chunk_bytes / row_bytes, page_size)),
      chunks(args.pairs.shape[0] * heads * (page_size / chunk_rows)) {}

/// Whether every row of both sides starts at a multiple of `bytes`.
bool divides(const CopyParams& p, std::uintptr_t bytes) {
  std::uintptr_t all = static_cast<std::uintptr_t>(p.row_bytes);
  for (const CopyParams::Side& s : {p.src, p.dst}) {
    all |= reinterpret_cast<std::uintptr_t>(s.data);
    for (std::int64_t step : {s.page, s.head, s.token}) all |= static_cast<std::uintptr_t>(step);
  }
  return all % bytes == 0;
}

/// A chunk of a head's rows.
template <class Piece>
__device__ void copy_rows(const CopyParams& p, const char* from, char* to) {
  const int row_pieces = static_cast<int>(p.row_bytes / static_cast<std::int64_t>(sizeof(Piece)));
  const int shift = 31 - __clz(row_pieces), pieces = static_cast<int>(p.chunk_rows) << shift;
  const auto offset = [&](int i, std::int64_t row_step) {
    return (i >> shift) * row_step +
           (i & (row_pieces - 1)) * static_cast<std::int64_t>(sizeof(Piece));
  };
  for (int first = static_cast<int>(threadIdx.x); first < pieces;
       first += pieces_under_way * threads) {
    Piece piece[pieces_under_way];
#pragma unroll
    for (int j = 0; j < pieces_under_way; ++j) {
      const int i = first + j * threads;
      if (i < pieces) piece[j] = *reinterpret_cast<const Piece*>(from + offset(i, p.src.token));
    }
#pragma unroll
    for (int j = 0; j < pieces_under_way; ++j) {
      const int i = first + j * threads;
      if (i < pieces) *reinterpret_cast<Piece*>(to + offset(i, p.dst.token)) = piece[j];
    }
  }
}

template <class Piece>
__global__ __launch_bounds__(threads) void copy_kernel(const __grid_constant__ CopyParams p) {
  const std::int64_t page_chunks = page_size / p.chunk_rows;
  for (std::int64_t c = blockIdx.x; c < p.chunks; c += gridDim.x) {
    const std::int64_t row = c % page_chunks * p.chunk_rows, head = c / page_chunks % p.heads;
    const std::int64_t* pair = p.pairs + c / page_chunks / p.heads * p.pair_step;
    const std::int64_t from = pair[0], to = pair[p.side_step];
    if (from < 0 || from >= p.src.pages || to < 0 || to >= p.dst.pages) continue;
    copy_rows<Piece>(p, p.src.data + from * p.src.page + head * p.src.head + row * p.src.token,
                     p.dst.data + to * p.dst.page + head * p.dst.head + row * p.dst.token);
  }
}

template <class Piece>
void launch_copy(const CopyPagesArgs& args, const CopyParams& params) {
  launch("copy_pages", copy_kernel<Piece>, params.chunks, threads, args.stream, params);
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
