// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/ptx/mma.cuh"
#include "cuda/common/widen.cuh"
#include "msa/types.h"

/// \file
/// What differs between the cache types: the type of the products, and how rows of a slot become
/// operands B of mma.sync. A slot's row of 256 or 128 bytes is a key, its 16-byte chunks swizzled
/// by the row.

namespace msa::cuda::portable::decode {

/// Where a lane reads or writes a slot, whose address is a multiple of 256: `row` and `chunk` are
/// the lane's own part of the place. Steps from there are constants of the code, so that a lane
/// keeps one number for all of them.
template <int row_bytes>
__device__ inline std::uint32_t lane_offset(int row, int chunk) {
  return static_cast<std::uint32_t>(row * row_bytes + ((chunk ^ row % 8) * 16));
}
/// From there on by `chunks`, which have no bit in common with the lane's, and by `rows`, a
/// multiple of 8.
template <int row_bytes>
__device__ inline std::uint32_t stepped(std::uint32_t at, int rows, int chunks) {
  return (at ^ static_cast<std::uint32_t>(chunks * 16)) +
         static_cast<std::uint32_t>(rows * row_bytes);
}

/// 16-bit caches: rows are operands as they lie in shared memory.
template <ptx::Operand type>
struct WideCache {
  static constexpr int element_bytes = 2;
  static constexpr ptx::Operand product = type;

  /// Where element d of a query lies.
  static constexpr int q_position(int d) { return d; }

  /// A lane's part of the places of keys (16 rows of each 64 are a group's) and of values (32
  /// columns of V are a warp's, or 16).
  __device__ static std::uint32_t key_offset(int group, int lane) {
    return lane_offset<256>(16 * group + lane / 16 * 8 + lane % 8, lane / 8 % 2);
  }
  template <int columns>
  __device__ static std::uint32_t value_offset(int warp, int lane) {
    return lane_offset<256>(lane % 16, columns / 8 * warp + lane / 16);
  }
  /// Operands of 16 keys of the `block`-th 64, and of the k steps 2 `pair` and + 1: b[step][8
  /// keys][2].
  __device__ static void load_keys(std::uint32_t at, int block, int pair,
                                   std::uint32_t (&b)[2][2][2]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      std::uint32_t x[4];
      ptx::load_matrices(x, stepped<256>(at, 64 * block, 4 * pair + 2 * step));
      b[step][0][0] = x[0], b[step][0][1] = x[1], b[step][1][0] = x[2], b[step][1][1] = x[3];
    }
  }
  /// Operands of 16 keys from `key` on and the warp's columns of V: b[8 columns][2].
  template <int tiles>
  __device__ static void load_values(std::uint32_t at, int key, std::uint32_t (&b)[tiles][2]) {
#pragma unroll
    for (int i = 0; i < tiles; i += 2) {
      std::uint32_t x[4];
      ptx::load_transposed(x, stepped<256>(at, key, i));
      b[i][0] = x[0], b[i][1] = x[1], b[i + 1][0] = x[2], b[i + 1][1] = x[3];
    }
  }
  /// A lane's columns of V come in pairs of neighbours: elements 2 i and 2 i + 1 of them are
  /// columns column(lane, i) and + 1 of the warp's.
  __device__ static int column(int lane, int i) { return 8 * i + lane % 4 * 2; }
  /// Of tile `tile` of columns and its element `e` (0 or 1): which of the lane's it is.
  static constexpr int element(int tile, int e) { return 2 * tile + e; }
};

/// 8-bit caches: every value is exact in f16.
template <DType type>
struct NarrowCache {
  static constexpr int element_bytes = 1;
  static constexpr ptx::Operand product = ptx::Operand::f16;

  /// A lane gets four neighbouring elements of a key, which become its two registers of B: a dot
  /// product does not mind the order.
  static constexpr int q_position(int d) {
    return d / 16 * 16 + d % 16 / 4 * 2 + d % 2 + d / 2 % 2 * 8;
  }

  __device__ static std::uint32_t key_offset(int group, int lane) {
    return lane_offset<128>(16 * group + lane / 8 % 2 * 8 + lane % 8, lane / 16);
  }
  template <int columns>
  __device__ static std::uint32_t value_offset(int warp, int lane) {
    // With 16 columns the upper lanes repeat the lower ones.
    return lane_offset<128>(lane % 16, columns / 16 * warp + (columns == 32 ? lane / 16 : 0));
  }
  __device__ static void load_keys(std::uint32_t at, int block, int pair,
                                   std::uint32_t (&b)[2][2][2]) {
    std::uint32_t x[4];
    ptx::load_matrices(x, stepped<128>(at, 64 * block, 2 * pair));
#pragma unroll
    for (int i = 0; i < 4; ++i) widen<type>(x[i], b[i / 2][i % 2][0], b[i / 2][i % 2][1]);
  }
  template <int tiles>
  __device__ static void load_values(std::uint32_t at, int key, std::uint32_t (&b)[tiles][2]) {
    std::uint32_t x[4];
    ptx::load_transposed(x, stepped<128>(at, key, 0));
    // A register has columns 2 g and 2 g + 1 of one key, then of the next.
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      widen<type>(__byte_perm(x[i], 0, 0x3120), b[i / 2 * 2][i % 2], b[i / 2 * 2 + 1][i % 2]);
    }
  }
  /// Tiles 2 h and 2 h + 1 have the even and the odd columns of 16.
  __device__ static int column(int lane, int i) { return 16 * (i / 2) + lane % 4 * 4 + i % 2 * 2; }
  static constexpr int element(int tile, int e) { return tile / 2 * 4 + e * 2 + tile % 2; }
};

using Bf16Cache = WideCache<ptx::Operand::bf16>;
using F16Cache = WideCache<ptx::Operand::f16>;
using E4m3Cache = NarrowCache<DType::e4m3>;
using E5m2Cache = NarrowCache<DType::e5m2>;

}  // namespace msa::cuda::portable::decode
