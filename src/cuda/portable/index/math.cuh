// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/mma.cuh"
#include "cuda/common/widen.cuh"
#include "cuda/portable/index/fetch.cuh"
#include "cuda/portable/index/queries.cuh"

/// \file
/// A warp that computes: its columns, along the rows of the products, by its keys of each slot,
/// along their columns; then the largest of each column.
///
/// A thread is lane 4 g + c. Of each 16 columns it holds columns g and g + 8, of each 8 keys the
/// keys 2 c and 2 c + 1. Every dot product is one chain of k steps in ascending order, whatever the
/// kernel's shape, so that all shapes give the same bits.

namespace msa::cuda::portable::index {

/// The larger; NaN if any is.
__device__ inline float larger(float a, float b) {
  float x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
  return x;
}

/// A score from the largest product: one NaN and one zero, whatever the products' were.
__device__ inline float score_of(float largest, float factor) {
  return largest != largest ? __uint_as_float(0x7fc00000) : largest * factor + 0.0f;
}

template <class Keys, int n>
class Math {
  using Sizes = Team<Keys, n>;
  static constexpr int tiles = Sizes::columns / 16;
  static constexpr int own_columns = 2 * tiles;  // of a thread: 2 t + r is 16 t + 8 r + g
  static constexpr int group = 16;               // keys that are multiplied together
  static constexpr int k_steps = Queries<Keys>::k_steps;

 public:
  __device__ Math(const ScoreParams& p, unsigned char* ring, Shared<Keys, n>& shared)
      : p_(p),
        ring_(ring),
        s_(shared),
        warp_(static_cast<int>(threadIdx.x) / warp_size),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        key_warp_(warp_ % Sizes::key_warps),
        first_column_(warp_ / Sizes::key_warps * Sizes::columns) {}

  /// board(first, end) when the maxima of these blocks are on the board, for this warp's columns.
  template <class Take>
  __device__ void score(const Segment& segment, Take take) {
    constexpr int ahead = Sizes::slots - 1;
    sync();  // nobody needs the ring's last keys any more
    Fetch<Keys, n> fetch(p_, segment, ptx::shared_address(ring_ + warp_ * warp_slot_bytes), warp_);
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) fetch.next();
    load_queries(segment);
    sync_board();  // nobody needs the slot any more
    const std::int32_t seen_by_all = segment.visible(0);
    int slot = 0;
#pragma unroll 1
    for (std::int32_t block = segment.page_begin; block < segment.page_end; ++block) {
      float best[own_columns];
#pragma unroll
      for (float& x : best) x = -INFINITY;
      const bool edge = seen_by_all - block * page_size < page_size;
#pragma unroll 1
      for (int part = 0; part < Sizes::slots_a_page; ++part) {
        ptx::wait_copies<ahead - 1>();
        sync();  // all of the slot is here, and nobody needs the one before any more
        fetch.next();
        if ((fetch.exists() >> ahead & 1) != 0) multiply(block, part, slot, edge, best);
        slot = slot + 1 == Sizes::slots ? 0 : slot + 1;
      }
      to_board(block, best);
      if ((block + 1) % Board<Keys, n>::pages != 0 && block + 1 < segment.page_end) continue;
      sync_board();
      const std::int32_t first = block / Board<Keys, n>::pages * Board<Keys, n>::pages;
      take(max(first, segment.page_begin), block + 1);
      sync_board();  // it may be written again
    }
    ptx::wait_copies();
  }

  /// A score from the maxima on the board.
  __device__ float score_at(int page, int column) const {
    float x = s_.board.maxima[0][page][column];
#pragma unroll
    for (int i = 1; i < Sizes::key_warps; ++i) {
      x = larger(x, s_.board.maxima[i][page][column]);
    }
    return score_of(x, s_.column[column].factor);
  }

 private:
  __device__ void sync() const {
    if constexpr (Sizes::own_keys) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  /// Of all warps that share a board's column.
  __device__ void sync_board() const {
    if constexpr (Sizes::key_warps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }

  /// By way of the slot that is asked for last.
  __device__ void load_queries(const Segment& segment) {
    unsigned char* const memory =
        ring_ + (Sizes::slots - 1) * Sizes::slot_bytes + (warp_ - key_warp_) * warp_slot_bytes;
    Queries<Keys>(p_, segment, memory, key_warp_)
        .template load<tiles, Sizes::key_warps>(first_column_, s_.column, q_,
                                                [this] { sync_board(); });
  }

  /// This warp's keys of a slot.
  __device__ void multiply(std::int32_t block, int part, int slot, bool edge,
                           float (&best)[own_columns]) {
    const std::uint32_t keys = ptx::shared_address(ring_) + slot * Sizes::slot_bytes +
                               key_warp_ * (Sizes::warp_keys * Keys::key_bytes);
    const int first_key = part * Sizes::slot_keys + key_warp_ * Sizes::warp_keys;
    constexpr int groups = Sizes::warp_keys / group;
    constexpr int together = tiles * groups <= 2 ? groups : 1;  // few products wait for each other
#pragma unroll together
    for (int i = 0; i < groups; ++i) {
      float sums[tiles][2][4] = {};
      multiply_group(keys + i * (group * Keys::key_bytes), sums);
      if (edge) hide(block * page_size + first_key + i * group, sums);
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float left = larger(sums[t][0][2 * r], sums[t][0][2 * r + 1]);
          const float right = larger(sums[t][1][2 * r], sums[t][1][2 * r + 1]);
          best[2 * t + r] = larger(best[2 * t + r], larger(left, right));
        }
      }
    }
  }

  /// Products of 16 keys with all of the warp's columns.
  __device__ void multiply_group(std::uint32_t keys, float (&sums)[tiles][2][4]) const {
    const int row = lane_ % 8;
    if constexpr (Keys::key_bytes == 128 && Keys::query_bytes == 256) {
      // Four k steps of 8 keys come together, and of the other 8.
      const std::uint32_t from = keys + row * Keys::key_bytes + (lane_ / 8 ^ row) * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t left[4], right[4];
        ptx::load_matrices(left, from ^ half * 64);
        ptx::load_matrices(right, (from ^ half * 64) + 8 * Keys::key_bytes);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          std::uint32_t b[4];
          widen<DType::e4m3>(left[i], b[0], b[1]);
          widen<DType::e4m3>(right[i], b[2], b[3]);
          multiply_step(4 * half + i, b, sums);
        }
      }
    } else {
      const std::uint32_t from =
          keys + (lane_ / 16 * 8 + row) * Keys::key_bytes + (lane_ / 8 % 2 ^ row) * 16;
#pragma unroll
      for (int step = 0; step < Keys::planes * k_steps; ++step) {
        std::uint32_t b[4];
        ptx::load_matrices(b, from ^ step % k_steps * 32);
        multiply_step(step, b, sums);
      }
    }
  }

  __device__ void multiply_step(int step, const std::uint32_t (&b)[4],
                                float (&sums)[tiles][2][4]) const {
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) multiply(sums[t][j], q_[t][step], b[2 * j], b[2 * j + 1]);
    }
  }

  __device__ static void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    if constexpr (Keys::query_bytes == 128) {
      ptx::mma_e4m3(d, a, b0, b1);
    } else {
      constexpr auto type = Keys::key_bytes == 128 ? ptx::Operand::f16 : ptx::Operand::bf16;
      ptx::mma<type>(d, a, b0, b1);
    }
  }

  /// −inf for keys that a column's row does not see; `key` is the first of the group.
  __device__ void hide(std::int32_t key, float (&sums)[tiles][2][4]) const {
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::int32_t seen = s_.column[column(2 * t + r)].visible - key - lane_ % 4 * 2;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (8 * j + e >= seen) sums[t][j][2 * r + e] = -INFINITY;
          }
        }
      }
    }
  }

  __device__ int column(int own) const {
    return first_column_ + own / 2 * 16 + own % 2 * 8 + lane_ / 4;
  }

  /// The warp's maxima of every column, onto the board. The four lanes of a column exchange one
  /// half of what they hold for the other's other half, as far as there are halves.
  __device__ void to_board(std::int32_t block, const float (&best)[own_columns]) const {
    const bool upper = (lane_ & 2) != 0, odd = (lane_ & 1) != 0;
    float half[tiles];
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      const float mine = upper ? best[tiles + i] : best[i];
      const float other = upper ? best[i] : best[tiles + i];
      half[i] = larger(mine, __shfl_xor_sync(0xffffffffu, other, 2));
    }
    float* const to = s_.board.maxima[key_warp_][block % Board<Keys, n>::pages];
    if constexpr (tiles == 1) {
      half[0] = larger(half[0], __shfl_xor_sync(0xffffffffu, half[0], 1));
      if (!odd) to[column(upper ? 1 : 0)] = half[0];
    } else {
      constexpr int kept = tiles / 2;
#pragma unroll
      for (int i = 0; i < kept; ++i) {
        const float mine = odd ? half[kept + i] : half[i];
        const float other = odd ? half[i] : half[kept + i];
        const float all = larger(mine, __shfl_xor_sync(0xffffffffu, other, 1));
        to[column((upper ? tiles : 0) + (odd ? kept : 0) + i)] = all;
      }
    }
  }

  const ScoreParams& p_;
  unsigned char* const ring_;
  Shared<Keys, n>& s_;
  const int warp_, lane_, key_warp_, first_column_;
  typename Queries<Keys>::Operands q_[tiles];
};

}  // namespace msa::cuda::portable::index
