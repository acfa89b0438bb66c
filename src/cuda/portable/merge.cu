// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/convert.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/warp.cuh"
#include "cuda/portable/operators.h"

/// \file
/// merge_states: one warp a row of 128 elements.

namespace msa::cuda::portable {
namespace {

struct RowsView {
  template <class Pointer>
  explicit RowsView(const BasicTensor<Pointer>& t)
      : data(const_cast<void*>(static_cast<const void*>(t.data))),
        token(t.stride[0]),
        head(t.stride[1]) {}

  __device__ std::int64_t at(std::int64_t t, std::int64_t h) const { return t * token + h * head; }

  void* data;
  std::int64_t token, head;  // strides
};

struct MergeParams {
  explicit MergeParams(const MergeArgs& args)
      : out_a(args.out_a),
        lse_a(args.lse_a),
        out_b(args.out_b),
        lse_b(args.lse_b),
        out(args.out),
        lse(args.lse),
        type(args.out.dtype),
        heads(args.out.shape[1]),
        rows(args.out.shape[0] * heads) {}

  RowsView out_a, lse_a, out_b, lse_b, out, lse;
  DType type;
  std::int64_t heads;
  std::int64_t rows;  // T · H
};

constexpr int row_warps = 8;  // rows of a CTA

/// Weights of the two sides, and the log of the sum. f64 for the few numbers of a row: weights that
/// add up to 1 within an f32 ulp. A NaN on either side makes both weights NaN.
struct Weights {
  __device__ Weights(float lse_a, float lse_b) {
    const double largest = lse_a > lse_b ? lse_a : lse_b;
    const double exp_a = exp(lse_a - largest), exp_b = exp(lse_b - largest);
    const double sum = exp_a + exp_b;
    a = static_cast<float>(exp_a / sum);
    b = static_cast<float>(exp_b / sum);
    lse = static_cast<float>(largest + log(sum));
  }
  float a, b, lse;
};

/// A row's bits as they are.
__device__ void copy_row(DType type, const RowsView& from, std::int64_t i, const RowsView& to,
                         std::int64_t j, int lane) {
  for (int d = lane; d < head_dim; d += warp_size) {
    if (type == DType::f32) {
      static_cast<float*>(to.data)[j + d] = static_cast<const float*>(from.data)[i + d];
    } else {
      static_cast<std::uint16_t*>(to.data)[j + d] =
          static_cast<const std::uint16_t*>(from.data)[i + d];
    }
  }
}

__device__ void merge_row(const MergeParams& p, std::int64_t t, std::int64_t h, int lane) {
  const std::int64_t at_lse = p.lse.at(t, h), at_out = p.out.at(t, h);
  const float a = static_cast<const float*>(p.lse_a.data)[p.lse_a.at(t, h)];
  const float b = static_cast<const float*>(p.lse_b.data)[p.lse_b.at(t, h)];
  float lse = -INFINITY;
  if (a == -INFINITY && b == -INFINITY) {
    for (int d = lane; d < head_dim; d += warp_size) store(p.type, p.out.data, at_out + d, 0.0f);
  } else if (a == -INFINITY) {
    copy_row(p.type, p.out_b, p.out_b.at(t, h), p.out, at_out, lane);
    lse = b;
  } else if (b == -INFINITY) {
    copy_row(p.type, p.out_a, p.out_a.at(t, h), p.out, at_out, lane);
    lse = a;
  } else {
    const Weights weights(a, b);
    const std::int64_t at_a = p.out_a.at(t, h), at_b = p.out_b.at(t, h);
    for (int d = lane; d < head_dim; d += warp_size) {
      const float x = load(p.type, p.out_a.data, at_a + d) * weights.a;
      store(p.type, p.out.data, at_out + d,
            fmaf(load(p.type, p.out_b.data, at_b + d), weights.b, x));
    }
    lse = weights.lse;
  }
  __syncwarp();  // lse may be one of the sides': all lanes have read
  if (lane == 0) static_cast<float*>(p.lse.data)[at_lse] = lse;
}

/// Four CTAs an SM: without a number the compiler keeps to 48 registers on SM120, and spills.
__global__ __launch_bounds__(row_warps* warp_size, 4) void merge_kernel(const MergeParams p) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t step = std::int64_t{gridDim.x} * row_warps;
  for (std::int64_t r = std::int64_t{blockIdx.x} * row_warps + warp; r < p.rows; r += step) {
    merge_row(p, r / p.heads, r % p.heads, lane);
  }
}

}  // namespace

void merge_states(const MergeArgs& args) {
  const MergeParams params(args);
  launch("merge_states", merge_kernel, (params.rows + row_warps - 1) / row_warps,
         row_warps * warp_size, args.stream, params);
}

}  // namespace msa::cuda::portable
