// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/query.cuh"
#include "cuda/sm90/index/cta.cuh"

/// \file
/// A tile's queries as an operand of the products, by the math warps, as they have nothing else to
/// do before. 16 lanes look after a column, eight neighbouring elements each.

namespace msa::cuda::sm90::index {

template <class Keys, int n>
class Queries {
 public:
  __device__ Queries(const ScoreParams& p, const Cta<Keys, n>& cta)
      : p_(p),
        cta_(cta),
        first_(static_cast<int>(threadIdx.x) / query_lanes),
        lane_(static_cast<int>(threadIdx.x) % query_lanes) {}

  /// All math threads; they must meet before the products and after them.
  __device__ void load(const Segment& s) const {
    const int columns = s.rows * p_.heads;
#pragma unroll 1
    for (int first = first_; first < n; first += batch * step) {
      uint4 bits[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int column = first + i * step;
        bits[i] = {0, 0, 0, 0};
        if (column < columns) bits[i] = load_index_query(p_, s, column, lane_);
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int column = first + i * step;
        const float factor = store(column, bits[i]);
        if (lane_ != 0) continue;
        cta_.shared.factor[column] = factor;
        cta_.shared.visible[column] =
            column < columns ? s.visible(row_of(column, p_.head_factor)) : 0;
      }
    }
    ptx::fence_async_proxy();
  }

 private:
  static constexpr int step = Team<n>::math_threads / query_lanes;
  /// Loads of a lane that are under way together.
  static constexpr int batch = n / step < 8 ? n / step : 8;
  static_assert(n % (batch * step) == 0, "no lane is without a column");

  /// Writes the elements as the products take them; returns what their scores are to be multiplied
  /// by. All of a warp.
  __device__ float store(int column, const uint4& bits) const {
    if constexpr (Keys::query_bytes == 128) {
      const int chunk = lane_ / 2 ^ column % 8;
      *reinterpret_cast<uint2*>(cta_.queries + column * 128 + chunk * 16 + lane_ % 2 * 8) = {
          bits.x, bits.y};
      return 1;
    } else {
      float x[8];
      widen_index_query(p_.q_type, bits, x);
      if constexpr (Keys::widens) {
        return store_f16(column, x);
      } else {
        store_bf16(column, x);
        return 1;
      }
    }
  }

  /// Planes of bf16, whose sum is the element: bf16 lacks three bits of f16.
  __device__ void store_bf16(int column, float (&x)[8]) const {
    unsigned char* to = cta_.queries + operand_offset<n>(column, 8 * lane_);
#pragma unroll
    for (int plane = 0; plane < Keys::planes; ++plane) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const bool last = plane + 1 == Keys::planes;
        const float a = last ? x[i] : upper_part(x[i]), b = last ? x[i + 1] : upper_part(x[i + 1]);
        words[i / 2] = pack<ptx::Operand::bf16>(a, b);
        x[i] = is_finite(a) ? x[i] - a : a;
        x[i + 1] = is_finite(b) ? x[i + 1] - b : b;
      }
      *reinterpret_cast<uint4*>(to + plane * n * Keys::query_bytes) = {words[0], words[1], words[2],
                                                                       words[3]};
    }
  }

  /// f16, where the products look for each element: a thread reads 16 bytes of a key at once and
  /// takes what its registers hold for consecutive k steps. A dot product does not mind the order:
  /// d = 32 c + 16 i + 4 s + 2 j + e is element 2 c + 8 j + e of k step 4 i + s.
  __device__ float store_f16(int column, float (&x)[8]) const {
    const float factor = scale_to_f16(p_.q_type, x);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int d = 8 * lane_ + i;
      const int c = d / 32, k_step = d % 32 / 4, j = d / 2 % 2;
      const int offset = operand_offset<n>(column, k_step * 16 + 2 * c + 8 * j);
      *reinterpret_cast<std::uint32_t*>(cta_.queries + offset) =
          pack<ptx::Operand::f16>(x[i], x[i + 1]);
    }
    return factor;
  }

  const ScoreParams& p_;
  const Cta<Keys, n>& cta_;
  const int first_, lane_;  // column of the first step, lane of it
};

}  // namespace msa::cuda::sm90::index
