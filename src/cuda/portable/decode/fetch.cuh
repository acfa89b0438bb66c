// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/common/ptx/mma.cuh"
#include "cuda/portable/decode/cache.cuh"
#include "cuda/portable/decode/config.h"
#include "cuda/portable/decode/params.h"

/// \file
/// Memory to the ring. With one tile each warp brings the rows that it computes logits of, so that
/// a slot of K is its own affair; V, which all warps read, is handed over by the barrier of P.

namespace msa::cuda::portable::decode {

/// A lane's chunks of a step where rows are aligned to their elements alone. No member: an object
/// whose address is taken would live in memory.
template <class Cache, class S>
__device__ __forceinline__ void copy_elements(unsigned char* slot, const char* from,
                                              std::int64_t token, int keys, int first_row,
                                              int chunk) {
  using Element = std::conditional_t<Cache::element_bytes == 2, std::uint16_t, std::uint8_t>;
  constexpr int elements = 16 / Cache::element_bytes;
  constexpr int rows_at_once = 32 / (S::row_bytes / 16);
  constexpr int warp_rows = 64 / S::warps;
#pragma unroll 1
  for (int i = 0; i < S::keys / S::warps; i += rows_at_once) {
    const int offset = i / warp_rows * 64 + i % warp_rows, row = first_row + offset;
    const auto* source = reinterpret_cast<const Element*>(from + row * token) + chunk * elements;
    auto* to = reinterpret_cast<Element*>(slot + row * S::row_bytes + ((chunk ^ row % 8) * 16));
#pragma unroll 1
    for (int e = 0; e < elements; ++e) to[e] = row < keys ? source[e] : Element{0};
  }
}

/// A warp's rows of a step: 16 keys of each 64, or 8 where two tiles share them.
template <class Cache, class S>
class Fetch {
 public:
  __device__ Fetch(const Params& p, int warp, int lane) : aligned_(p.kv_aligned) {
    row_ = warp_rows * warp + lane / chunks;
    chunk_ = lane % chunks;
  }

  /// Keys from `from` (the step's first key) on; of those at or past `keys`, which do not exist,
  /// zeros.
  __device__ void bring(std::uint32_t slot, unsigned char* memory, const char* from,
                        std::int64_t token, int keys) const {
    if (!aligned_) return copy_elements<Cache, S>(memory, from, token, keys, row_, chunk_);
    const char* source = from + row_ * token + chunk_ * 16;
    const std::uint32_t at = slot + lane_offset<S::row_bytes>(row_, chunk_);
    const int left = keys - row_;  // rows from the lane's first on
    const std::int64_t step = rows_at_once * token;
#pragma unroll
    for (int block = 0; block < S::keys / 64; ++block) {
      const char* next = source + 64 * block * token;
#pragma unroll
      for (int i = 0; i < warp_rows; i += rows_at_once) {
        const int offset = 64 * block + i;
        const bool wanted = offset < left;
        // Rows are swizzled by their lowest bits: the lane's own, and those of the step.
        const std::uint32_t to = (at ^ static_cast<std::uint32_t>(i % 8 * 16)) +
                                 static_cast<std::uint32_t>(offset * S::row_bytes);
        ptx::copy_16(to, next, wanted);
        next += step;
      }
    }
  }

 private:
  static constexpr int chunks = S::row_bytes / 16;
  static constexpr int warp_rows = 64 / S::warps;  // of each 64 keys
  static constexpr int rows_at_once = 32 / chunks;

  bool aligned_;
  int row_, chunk_;
};

}  // namespace msa::cuda::portable::decode
