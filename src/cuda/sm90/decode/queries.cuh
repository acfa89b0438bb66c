// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cmath>

#include "cuda/common/convert.cuh"
#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/traits.cuh"

/// \file
/// The queries of an item as operand B of the logits.

namespace msa::cuda::sm90::decode {

/// Byte offset of element (column, k) of a [n][128] operand of 16-bit elements: two halves of k,
/// each with rows of 128 bytes whose 16-byte chunks are swizzled by the row.
template <int n>
__device__ inline int operand_offset(int column, int k) {
  const int chunk = k % 64 / 8;
  return k / 64 * (n * 128) + column * 128 + ((chunk ^ column % 8) * 16) + k % 8 * 2;
}

/// Four neighbouring elements of one query head a lane.
template <class Cache, int n>
class Queries {
 public:
  __device__ Queries(const Params& p, const Item& item) {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int columns = item.rows * p.group;
    const std::uint16_t* first = p.q + item.first_token * p.q_token +
                                 item.head * p.group * p.q_head + threadIdx.x % warp_size * 4;
#pragma unroll
    for (int i = 0; i < per_warp; ++i) {
      const int column = warp + i * math_warps;
      bits_[i] = {0, 0};
      if (column >= columns) continue;
      const int row = row_of(column, p.row_factor);
      const std::uint16_t* from = first + row * p.q_token + (column - row * p.group) * p.q_head;
      if (p.q_aligned) {
        bits_[i] = *reinterpret_cast<const uint2*>(from);
      } else {
        bits_[i] = {from[0] | std::uint32_t{from[1]} << 16, from[2] | std::uint32_t{from[3]} << 16};
      }
    }
  }

  /// Writes them as products of the cache's type take them, and each column's logit factor.
  __device__ void store(const Params& p, Shared<n>& s) const {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const double scale =
        static_cast<double>(p.softmax_scale) * p.k_scale.value() * 1.4426950408889634074;  // log2 e
#pragma unroll
    for (int i = 0; i < per_warp; ++i) {
      const int column = warp + i * math_warps;
      float x[4];
      widen(p, bits_[i], x);
      int exponent = 0;
      if constexpr (Cache::product == ptx::Operand::f16) {
        exponent = f16_exponent(largest_of(x));
      } else if (extreme(scale)) {
        exponent = scale_exponent(scale, largest_of(x));
      }
      scale_row(exponent, x);
      if (lane == 0) {
        s.factor[column] = static_cast<float>(scale * __hiloint2double((1023 - exponent) << 20, 0));
      }
      const std::uint32_t low = pack<Cache::product>(x[0], x[1]);
      const std::uint32_t high = pack<Cache::product>(x[2], x[3]);
      store_pair(s, column, position(4 * lane), low);
      store_pair(s, column, position(4 * lane + 2), high);
    }
  }

 private:
  static constexpr int per_warp = n / math_warps;

  /// The largest finite magnitude of a row, four elements a lane.
  __device__ static float largest_of(const float (&x)[4]) {
    float largest = 0;
    for (float element : x) {
      if (fabsf(element) <= FLT_MAX) largest = fmaxf(largest, fabsf(element));
    }
    return warp_max(largest);
  }
  __device__ static int floor_log2(float x) {
    const bool tiny = x < 0x1p-100f;
    const float normal = tiny ? x * 0x1p100f : x;
    return static_cast<int>(__float_as_uint(normal) >> 23) - 127 - (tiny ? 100 : 0);
  }

  /// The power of two that takes a row to just below f16's largest number: no element overflows,
  /// and only those below 2^-31 of the largest round.
  __device__ static int f16_exponent(float largest) {
    return largest == 0 ? 0 : 14 - floor_log2(largest);
  }

  /// A logit scale that f32 does not hold, or hardly.
  __device__ static bool extreme(double scale) {
    const double magnitude = fabs(scale);
    return magnitude <= DBL_MAX && magnitude > 0 && !(magnitude > 0x1p-100 && magnitude < 0x1p100);
  }
  /// The part of it that a bf16 row takes over, short of overflowing.
  __device__ static int scale_exponent(double scale, float largest) {
    constexpr int kept = 64;
    const int whole = ilogb(scale);
    if (whole < 0) return max(whole + kept, -kept);
    return largest == 0 ? 0 : min(whole - kept, max(0, 126 - floor_log2(largest)));
  }

  __device__ static void scale_row(int exponent, float (&x)[4]) {
    const int half = exponent / 2;  // in two steps, as 2^exponent may be no f32
    const float first = power_of_two(half), second = power_of_two(exponent - half);
    for (float& element : x) element = element * first * second;
  }
  __device__ static float power_of_two(int exponent) {
    return __uint_as_float(static_cast<unsigned>(127 + exponent) << 23);
  }

  __device__ static void widen(const Params& p, uint2 bits, float (&x)[4]) {
    const std::uint32_t element[] = {bits.x & 0xffff, bits.x >> 16, bits.y & 0xffff, bits.y >> 16};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      x[i] = p.q_is_f16 ? f16_to_f32(element[i]) : bf16_to_f32(element[i]);
  }

  /// Where the products look for element d. In 8-bit caches a thread reads 16 bytes of a key at
  /// once and takes what its registers hold for consecutive k steps; a dot product does not mind
  /// the order: d = 32 c + 16 i + 4 s + 2 j + e is element 2 c + 8 j + e of k step 4 i + s.
  __device__ static int position(int d) {
    if constexpr (!Cache::widens) return d;
    const int c = d / 32, step = d % 32 / 4, j = d / 2 % 2;
    return step * 16 + 2 * c + 8 * j;
  }

  __device__ static void store_pair(Shared<n>& s, int column, int k, std::uint32_t bits) {
    *reinterpret_cast<std::uint32_t*>(s.queries + operand_offset<n>(column, k)) = bits;
  }

  uint2 bits_[per_warp];
};

}  // namespace msa::cuda::sm90::decode
