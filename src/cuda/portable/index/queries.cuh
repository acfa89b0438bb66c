// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/query.cuh"
#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/ptx/mma.cuh"
#include "cuda/portable/index/config.h"
#include "cuda/portable/index/params.h"

/// \file
/// A warp's queries as operands of its products, in registers: 16 columns at a time pass through a
/// warp's part of a slot, where 16 lanes look after a column, eight neighbouring elements each.

namespace msa::cuda::portable::index {

template <class Keys>
class Queries {
 public:
  static constexpr int k_steps = Keys::query_bytes / 32;  // of a plane
  using Operands = std::uint32_t[Keys::planes * k_steps][4];

  /// `memory`: the parts of a slot of all warps that share these columns; this one is warp `share`
  /// of them.
  __device__ Queries(const ScoreParams& p, const Segment& segment, unsigned char* memory, int share)
      : p_(p),
        segment_(segment),
        memory_(memory),
        share_(share),
        lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  /// The 16 · `tiles` columns from `first` on, each converted by one of the `sharing` warps and
  /// taken by all of them, which sync() keeps together. `described` are the CTA's columns.
  template <int tiles, int sharing, class Sync>
  __device__ void load(int first, Column* described, Operands (&a)[tiles], Sync sync) const {
    constexpr int together = tiles < sharing ? tiles : sharing;  // tiles, a part of the slot each
    constexpr int steps = together * tile_steps / sharing;       // of two columns, of each warp
#pragma unroll
    for (int begin = 0; begin < tiles; begin += together) {
      uint4 bits[steps];
#pragma unroll
      for (int i = 0; i < steps; ++i) {
        const int column = first + 16 * begin + row(share_ * steps + i);
        bits[i] = {0, 0, 0, 0};
        if (column < segment_.rows * p_.heads)
          bits[i] = load_index_query(p_, segment_, column, own_);
      }
#pragma unroll
      for (int plane = 0; plane < Keys::planes; ++plane) {
        if (begin + plane > 0) sync();  // what was there is in registers
#pragma unroll
        for (int i = 0; i < steps; ++i) {
          const int own = row(share_ * steps + i);
          const float factor = store(own, plane, bits[i]);
          if (plane == 0 && own_ == 0) describe(first + 16 * begin + own, factor, described);
        }
        sync();
#pragma unroll
        for (int i = 0; i < together; ++i) take(i, plane, a[begin + i]);
      }
    }
  }

 private:
  static constexpr int tile_steps = 16 * query_lanes / warp_size;

  __device__ void describe(int column, float factor, Column* described) const {
    const bool given = column < segment_.rows * p_.heads;
    described[column] = {factor, given ? segment_.visible(row_of(column, p_.head_factor)) : 0};
  }

  /// Tile `from` of a plane.
  __device__ void take(int from, int plane, Operands& a) const {
    const int at = lane_ / 8 % 2 * 8 + lane_ % 8;
    const std::uint32_t address = ptx::shared_address(memory_ + from * warp_slot_bytes) +
                                  at * Keys::query_bytes + (lane_ / 16 ^ at % 8) * 16;
#pragma unroll
    for (int k = 0; k < k_steps; ++k) {
      ptx::load_matrices(a[plane * k_steps + k], address ^ k * 32);
    }
  }

  /// Column of a step, of those that are converted together.
  __device__ int row(int step) const { return 2 * step + lane_ / query_lanes; }

  /// Writes a plane of the elements as the products take them; returns what their scores are to be
  /// multiplied by. All of the warp.
  __device__ float store(int row, int plane, const uint4& bits) const {
    unsigned char* const to = memory_ + row / 16 * warp_slot_bytes + row % 16 * Keys::query_bytes;
    if constexpr (Keys::query_bytes == 128) {
      *reinterpret_cast<uint2*>(to + (own_ / 2 ^ row % 8) * 16 + own_ % 2 * 8) = {bits.x, bits.y};
      return 1;
    } else {
      float x[8];
      widen_index_query(p_.q_type, bits, x);
      if constexpr (Keys::key_bytes == 128) return store_f16(to, row, x);
      store_bf16(to + (own_ ^ row % 8) * 16, plane, x);
      return 1;
    }
  }

  /// A plane of bf16; the planes' sum is the element: bf16 lacks three bits of f16.
  __device__ static void store_bf16(unsigned char* to, int plane, float (&x)[8]) {
    constexpr int last = Keys::planes - 1;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (last == 0) continue;
      const float upper = upper_part(x[i]);
      x[i] = plane < last || !is_finite(x[i]) ? upper : x[i] - upper;
    }
    *reinterpret_cast<uint4*>(to) = {
        pack<ptx::Operand::bf16>(x[0], x[1]), pack<ptx::Operand::bf16>(x[2], x[3]),
        pack<ptx::Operand::bf16>(x[4], x[5]), pack<ptx::Operand::bf16>(x[6], x[7])};
  }

  /// f16, where the products look for each element: of 16 bytes of a key a lane gets four, which
  /// are what it holds of one k step. A dot product does not mind the order: d = 16 s + 4 c + 2 j
  /// + e is element 8 j + 2 c + e of k step s.
  __device__ float store_f16(unsigned char* to, int row, float (&x)[8]) const {
    const float factor = scale_to_f16(p_.q_type, x);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int d = 8 * own_ + i;
      const int s = d / 16, c = d % 16 / 4, j = d / 2 % 2;
      *reinterpret_cast<std::uint32_t*>(to + ((2 * s + j) ^ row % 8) * 16 + 4 * c) =
          pack<ptx::Operand::f16>(x[i], x[i + 1]);
    }
    return factor;
  }

  const ScoreParams& p_;
  const Segment& segment_;
  unsigned char* const memory_;
  const int share_;
  const int lane_;
  const int own_ = lane_ % query_lanes;  // of a column's lanes
};

}  // namespace msa::cuda::portable::index
