// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/ptx/mma.cuh"
#include "cuda/common/widen.cuh"
#include "cuda/portable/prefill/tile.cuh"

/// \file
/// Half pages on their way into shared memory, by all threads of the CTA. What no token of the tile
/// sees is zeros there: it may be anything in the cache, and 0 · NaN is NaN.

namespace msa::cuda::portable::prefill {

/// The value, which the compiler cannot compute with ahead of here: what follows from a lane's
/// number would otherwise be kept over the loop, in registers that it does not have.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// Offset of a 16-byte chunk of an operand's row: eight rows' chunks of one column lie in different
/// banks.
__device__ inline int chunk_offset(int row, int chunk) {
  return row * row_bytes + ((chunk ^ row % 8) << 4);
}

template <DType type>
class Fetch {
 public:
  __device__ Fetch(const Params& p, const Cta<type>& cta) : p_(p), cta_(cta) {}

  /// Asks for the half page of a step; a group of copies of its own.
  __device__ void ask(int step) const {
    const Tile& tile = cta_.tile;
    const HalfPage half(tile, step);
    int keys = half_keys;
    if (half.partial) keys = tile.visible(p_, tile.seq_len, tile.rows - 1) - half.first_key;
    const std::int64_t page = cta_.list[half.entry].page;
    unsigned char* const stage = cta_.ring + step % Ring<type>::stages * Ring<type>::stage_bytes;
    const int first = step % 2 * half_keys;
    copy(p_.k, page, first, keys, stage);
    copy(p_.v, page, first, keys, stage + Ring<type>::stage_bytes / 2);
  }

  /// 8-bit caches: a half page that has arrived, as operands.
  __device__ void widen(int step) const {
    const unsigned char* const stage =
        cta_.ring + step % Ring<type>::stages * Ring<type>::stage_bytes;
    constexpr int keys_at_once = threads / 8;
    const int thread = opaque(static_cast<int>(threadIdx.x)), chunk = thread % 8, row = thread / 8;
    // A lane's 16 bytes become two chunks; half of the lanes begin with the other one, or two lanes
    // would meet in the same banks.
    const bool other = chunk >= 4;
#pragma unroll
    for (int i = 0; i < 2 * half_keys / keys_at_once; ++i) {
      const int key = row + i * keys_at_once;  // those of V behind those of K
      const auto x = *reinterpret_cast<const uint4*>(stage + key * head_dim + chunk * 16);
      unsigned char* const to = operands();
      widen_eight(other ? x.z : x.x, other ? x.w : x.y,
                  to + chunk_offset(key, 2 * chunk + (other ? 1 : 0)));
      widen_eight(other ? x.x : x.z, other ? x.y : x.w,
                  to + chunk_offset(key, 2 * chunk + (other ? 0 : 1)));
    }
  }

  /// K of a step's half page as an operand, then V.
  __device__ unsigned char* operands(int step = 0) const {
    if constexpr (Ring<type>::widens)
      return cta_.ring + Ring<type>::stages * Ring<type>::stage_bytes;
    return cta_.ring + step % Ring<type>::stages * Ring<type>::stage_bytes;
  }

 private:
  static constexpr int chunks = Ring<type>::element_bytes * head_dim / 16;  // of a key
  static constexpr int keys_at_once = threads / chunks;
  static constexpr int chunk_elements = 16 / Ring<type>::element_bytes;

  /// Keys [first, first + 64) of a page, of which `keys` are seen.
  __device__ void copy(const HalfView& from, std::int64_t page, int first, int keys,
                       unsigned char* to) const {
    const int thread = opaque(static_cast<int>(threadIdx.x));
    const int chunk = thread % chunks, row = thread / chunks;
    const char* source = from.data + page * from.page + cta_.tile.head * from.head +
                         (first + row) * from.token + chunk * 16;
    unsigned char* const target =
        to + (Ring<type>::widens ? row * head_dim + chunk * 16 : chunk_offset(row, chunk));
    static_assert(keys_at_once % 8 == 0, "all rows of a thread are swizzled alike");
    constexpr int steps = half_keys / keys_at_once, step_bytes = keys_at_once * chunks * 16;
    const std::int64_t source_step = keys_at_once * from.token;
    if (p_.kv_aligned) {
      const std::uint32_t address = ptx::shared_address(target);
#pragma unroll
      for (int i = 0; i < steps; ++i) {
        ptx::copy_16(address + i * step_bytes, source + i * source_step,
                     row + i * keys_at_once < keys);
      }
      return;
    }
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      const bool wanted = row + i * keys_at_once < keys;
      *reinterpret_cast<uint4*>(target + i * step_bytes) =
          wanted ? read(source + i * source_step) : uint4{0, 0, 0, 0};
    }
  }

  /// 16 bytes, element by element.
  __device__ static uint4 read(const char* from) {
    std::uint32_t word[4] = {};
#pragma unroll
    for (int e = 0; e < chunk_elements; ++e) {
      constexpr int bits = 8 * Ring<type>::element_bytes;
      std::uint32_t x;
      if constexpr (Ring<type>::widens) {
        x = static_cast<std::uint8_t>(from[e]);
      } else {
        x = reinterpret_cast<const std::uint16_t*>(from)[e];
      }
      word[e * bits / 32] |= x << e * bits % 32;
    }
    return {word[0], word[1], word[2], word[3]};
  }

  __device__ static void widen_eight(std::uint32_t first, std::uint32_t second, unsigned char* to) {
    uint4 half;
    cuda::widen<type>(first, half.x, half.y);
    cuda::widen<type>(second, half.z, half.w);
    *reinterpret_cast<uint4*>(to) = half;
  }

  const Params& p_;
  const Cta<type>& cta_;
};

}  // namespace msa::cuda::portable::prefill
