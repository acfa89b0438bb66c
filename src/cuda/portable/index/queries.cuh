// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/ptx/mma.cuh"
#include "cuda/portable/index/config.h"
#include "cuda/portable/index/params.h"
#include "cuda/sm90/common/query_row.cuh"

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
        if (column < segment_.rows * p_.heads) bits[i] = load_bits(column);
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
  static constexpr int tile_steps = 16 * sm90::query_lanes / warp_size;

  __device__ void describe(int column, float factor, Column* described) const {
    const bool given = column < segment_.rows * p_.heads;
    described[column] = {factor,
                         given ? segment_.visible(sm90::row_of(column, p_.head_factor)) : 0};
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
  __device__ int row(int step) const { return 2 * step + lane_ / sm90::query_lanes; }

  /// This lane's elements, as they are.
  __device__ uint4 load_bits(int column) const {
    const int row = sm90::row_of(column, p_.head_factor);
    const char* from =
        p_.q + (segment_.first_token + row) * p_.q_token + (column - row * p_.heads) * p_.q_head;
    if (p_.q_type != DType::e4m3) {
      return sm90::load_query(reinterpret_cast<const std::uint16_t*>(from) + 8 * own_,
                              p_.q_aligned);
    }
    from += 8 * own_;
    if (p_.q_aligned) {
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      return {two.x, two.y, 0, 0};
    }
    std::uint32_t words[2] = {0, 0};
    for (int i = 0; i < 8; ++i) {
      words[i / 4] |= std::uint32_t{static_cast<unsigned char>(from[i])} << i % 4 * 8;
    }
    return {words[0], words[1], 0, 0};
  }

  __device__ void widen_query(const uint4& bits, float (&x)[8]) const {
    const std::uint32_t words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t two = words[i / 2] >> i % 2 * 16 & 0xffff;
      if (p_.q_type == DType::bf16) {
        x[i] = bf16_to_f32(two);
      } else if (p_.q_type == DType::f16) {
        x[i] = f16_to_f32(two);
      } else {
        x[i] = e4m3_to_f32(words[i / 4] >> i % 4 * 8 & 0xff);
      }
    }
  }

  /// Writes a plane of the elements as the products take them; returns what their scores are to be
  /// multiplied by. All of the warp.
  __device__ float store(int row, int plane, const uint4& bits) const {
    unsigned char* const to = memory_ + row / 16 * warp_slot_bytes + row % 16 * Keys::query_bytes;
    if constexpr (Keys::query_bytes == 128) {
      *reinterpret_cast<uint2*>(to + (own_ / 2 ^ row % 8) * 16 + own_ % 2 * 8) = {bits.x, bits.y};
      return 1;
    } else {
      float x[8];
      widen_query(bits, x);
      if constexpr (Keys::key_bytes == 128) return store_f16(to, row, x);
      store_bf16(to + (own_ ^ row % 8) * 16, plane, x);
      return 1;
    }
  }

  /// A plane of bf16; the planes' sum is the element: bf16 lacks three bits of f16. Against an
  /// infinite key or a product near f32's end no plane may be 0 or of another sign than the
  /// element.
  __device__ static void store_bf16(unsigned char* to, int plane, float (&x)[8]) {
    constexpr int last = Keys::planes - 1;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (last == 0) continue;
      const float upper = upper_part(x[i]);
      x[i] = plane < last || !is_finite(x[i]) ? upper : x[i] - upper;
    }
    *reinterpret_cast<uint4*>(to) = {
        sm90::pack<ptx::Operand::bf16>(x[0], x[1]), sm90::pack<ptx::Operand::bf16>(x[2], x[3]),
        sm90::pack<ptx::Operand::bf16>(x[4], x[5]), sm90::pack<ptx::Operand::bf16>(x[6], x[7])};
  }

  __device__ static bool is_finite(float x) { return fabsf(x) <= FLT_MAX; }
  /// What bf16 holds of an f16 number, cut off towards 0, or half of it where that is all.
  __device__ static float upper_part(float x) {
    const float upper = __uint_as_float(__float_as_uint(x) & 0xffff0000);
    return !is_finite(x) ? x : upper == x ? 0.5f * x : upper;
  }

  /// f16, where the products look for each element: of 16 bytes of a key a lane gets four, which
  /// are what it holds of one k step. A dot product does not mind the order: d = 16 s + 4 c + 2 j
  /// + e is element 8 j + 2 c + e of k step s.
  __device__ float store_f16(unsigned char* to, int row, float (&x)[8]) const {
    // Only bf16 holds what f16 does not.
    const int exponent = p_.q_type == DType::bf16 ? sm90::f16_exponent(sm90::row_maximum(x)) : 0;
    sm90::scale_row(exponent, x);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int d = 8 * own_ + i;
      const int s = d / 16, c = d % 16 / 4, j = d / 2 % 2;
      *reinterpret_cast<std::uint32_t*>(to + ((2 * s + j) ^ row % 8) * 16 + 4 * c) =
          sm90::pack<ptx::Operand::f16>(x[i], x[i + 1]);
    }
    return exponent_factor(-exponent);
  }

  /// 2^exponent, to f32's ends: bf16 rows reach from 2^-133 to 2^127.
  __device__ static float exponent_factor(int exponent) {
    return static_cast<float>(__hiloint2double((1023 + exponent) << 20, 0));
  }

  const ScoreParams& p_;
  const Segment& segment_;
  unsigned char* const memory_;
  const int share_;
  const int lane_;
  const int own_ = lane_ % sm90::query_lanes;  // of a column's lanes
};

}  // namespace msa::cuda::portable::index
