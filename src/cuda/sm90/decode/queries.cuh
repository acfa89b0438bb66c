// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cmath>

#include "cuda/common/convert.cuh"
#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/traits.cuh"

/// \file
/// The three warps that bring an item's queries, as operand B of the logits, while the item before
/// is computed: at 256 requests the math warps waited 2.5 µs an item for them.

namespace msa::cuda::sm90::decode {

/// Byte offset of element (column, k) of a [n][128] operand of 16-bit elements: two halves of k,
/// each with rows of 128 bytes whose 16-byte chunks are swizzled by the row.
template <int n>
__device__ inline int operand_offset(int column, int k) {
  const int chunk = k % 64 / 8;
  return k / 64 * (n * 128) + column * 128 + ((chunk ^ column % 8) * 16) + k % 8 * 2;
}

/// One warp of them: 16 lanes look after a query head, eight neighbouring elements each.
template <class Cache, int n>
class Queries {
 public:
  /// `warp` of query_warps.
  __device__ Queries(const Params& p, const Cta<n>& cta, int warp)
      : p_(p),
        cta_(cta),
        first_(2 * warp + static_cast<int>(threadIdx.x) % warp_size / lanes),
        lane_(static_cast<int>(threadIdx.x) % lanes) {}

  /// `parity` is the item's, of those of this CTA.
  __device__ void run(const Item& item, int parity) {
#pragma unroll 1
    for (int column = first_; column - first_ < n; column += batch * step) {
      load(item, column);
      store(column, parity);
    }
    ptx::fence_async_proxy();
    __syncwarp();
    ptx::arrive_threads(barriers::ready + parity, threads);
  }

 private:
  static constexpr int lanes = 16;              // of a column
  static constexpr int step = 2 * query_warps;  // columns at once
  /// Loads of a lane that are under way together.
  static constexpr int batch = n == 8 ? 2 : 3;

  __device__ void load(const Item& item, int first_column) {
    const int columns = item.rows * p_.group;
    const std::uint16_t* first =
        p_.q + item.first_token * p_.q_token + item.head * p_.group * p_.q_head + lane_ * 8;
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int column = first_column + i * step;
      bits_[i] = {0, 0, 0, 0};
      if (column >= columns) continue;
      const int row = row_of(column, p_.row_factor);
      const std::uint16_t* from = first + row * p_.q_token + (column - row * p_.group) * p_.q_head;
      if (p_.q_aligned) {
        bits_[i] = *reinterpret_cast<const uint4*>(from);
      } else {
        const auto two = [&](int e) { return from[e] | std::uint32_t{from[e + 1]} << 16; };
        bits_[i] = {two(0), two(2), two(4), two(6)};
      }
    }
  }

  /// Writes them as products of the cache's type take them, and each column's logit factor.
  __device__ void store(int first_column, int parity) const {
    const double scale = static_cast<double>(p_.softmax_scale) * p_.k_scale.value() *
                         1.4426950408889634074;  // log2 e
    unsigned char* queries = cta_.queries(parity);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int column = first_column + i * step;
      float x[8];
      widen(p_, bits_[i], x);
      int exponent = 0;
      if constexpr (Cache::product == ptx::Operand::f16) {
        exponent = f16_exponent(row_maximum(x));
      } else if (extreme(scale)) {
        exponent = scale_exponent(scale, row_maximum(x));
      }
      scale_row(exponent, x);
      if (column >= n) continue;
      if (lane_ == 0) {
        cta_.shared.factor[parity][column] = factor_of(scale, exponent);
      }
      const uint4 bits = {pack<Cache::product>(x[0], x[1]), pack<Cache::product>(x[2], x[3]),
                          pack<Cache::product>(x[4], x[5]), pack<Cache::product>(x[6], x[7])};
      if constexpr (Cache::widens) {
        store_two(queries, column, 0, bits.x);
        store_two(queries, column, 2, bits.y);
        store_two(queries, column, 4, bits.z);
        store_two(queries, column, 6, bits.w);
      } else {
        *reinterpret_cast<uint4*>(queries + operand_offset<n>(column, 8 * lane_)) = bits;
      }
    }
  }

  /// The largest finite magnitude of a row.
  __device__ static float row_maximum(const float (&x)[8]) {
    float largest = 0;
    for (float element : x) {
      if (fabsf(element) <= FLT_MAX) largest = fmaxf(largest, fabsf(element));
    }
    for (int lane = 1; lane < lanes; lane *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
    }
    return largest;
  }
  __device__ static int floor_log2(float x) {
    const bool tiny = x < 0x1p-100f;
    const float normal = tiny ? x * 0x1p100f : x;
    return static_cast<int>(__float_as_uint(normal) >> 23) - 127 - (tiny ? 100 : 0);
  }

  /// The power of two that takes a row's largest number to 2^14 or more, below 2^15: no element
  /// overflows f16, and only those below 2^-31 of the largest round.
  __device__ static int f16_exponent(float largest) {
    return largest == 0 ? 0 : 14 - floor_log2(largest);
  }

  /// What is left of the scale for the row's logits, f32's largest number where it is more: a row
  /// of zeros must not meet an infinite factor. Others' logits overflow then, or come out too
  /// small: f16 products of queries above 2^86 with tiny keys, at a scale above 2^41.
  __device__ static float factor_of(double scale, int exponent) {
    const double left = scale * __hiloint2double((1023 - exponent) << 20, 0);
    const bool too_large = fabs(left) > FLT_MAX && fabs(scale) <= DBL_MAX;
    return too_large ? copysignf(FLT_MAX, static_cast<float>(left)) : static_cast<float>(left);
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

  __device__ static void scale_row(int exponent, float (&x)[8]) {
    const int half = exponent / 2;  // in two steps, as 2^exponent may be no f32
    const float first = power_of_two(half), second = power_of_two(exponent - half);
    for (float& element : x) element = element * first * second;
  }
  __device__ static float power_of_two(int exponent) {
    return __uint_as_float(static_cast<unsigned>(127 + exponent) << 23);
  }

  __device__ static void widen(const Params& p, const uint4& bits, float (&x)[8]) {
    const std::uint32_t words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t element = words[i / 2] >> i % 2 * 16 & 0xffff;
      x[i] = p.q_is_f16 ? f16_to_f32(element) : bf16_to_f32(element);
    }
  }

  /// Where the products look for element d. In 8-bit caches a thread reads 16 bytes of a key at
  /// once and takes what its registers hold for consecutive k steps; a dot product does not mind
  /// the order: d = 32 c + 16 i + 4 s + 2 j + e is element 2 c + 8 j + e of k step 4 i + s.
  __device__ static int position(int d) {
    const int c = d / 32, step = d % 32 / 4, j = d / 2 % 2;
    return step * 16 + 2 * c + 8 * j;
  }

  /// Elements 8 · lane + `first` and the next.
  __device__ void store_two(unsigned char* queries, int column, int first,
                            std::uint32_t bits) const {
    const int offset = operand_offset<n>(column, position(8 * lane_ + first));
    *reinterpret_cast<std::uint32_t*>(queries + offset) = bits;
  }

  const Params& p_;
  const Cta<n>& cta_;
  int first_, lane_;  // column of the first step, lane of it
  uint4 bits_[batch];
};

}  // namespace msa::cuda::sm90::decode
