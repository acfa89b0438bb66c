// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/index/math_warp.cuh"

/// \file
/// The warpgroups that compute, for tiles of 128 columns and more: products of the tile's queries,
/// along the 64 rows of wgmma, and a page's keys, along its n. So a column's keys are in one row,
/// whose four lanes find the largest in registers.
///
/// A thread is lane 4 g + c of warp w. Of each 64 columns of its warpgroup it holds columns
/// 16 w + g and + 8 of the keys 8 j + 2 c and + 1 of the page.

namespace msa::cuda::sm90::index {

/// Scores of one column into its row of memory, four blocks at a time where they lie together.
class ScoreRow {
 public:
  /// `to`: block 0; null: nobody wants them.
  __device__ ScoreRow(float* to, std::int64_t stride)
      : to_(to),
        stride_(stride),
        together_(stride == 1 && reinterpret_cast<std::uintptr_t>(to) % sizeof(float4) == 0) {}

  __device__ void add(std::int32_t block, float score) {
#pragma unroll
    for (int i = 0; i < 3; ++i) scores_[i] = scores_[i + 1];
    scores_[3] = score;
    ++count_;
    if (block % 4 == 3) flush(block);
  }
  /// Writes what is not yet written, up to `last`, the block added last.
  __device__ void flush(std::int32_t last) {
    if (to_ != nullptr && count_ == 4 && together_) {
      *reinterpret_cast<float4*>(to_ + last - 3) = {scores_[0], scores_[1], scores_[2], scores_[3]};
    } else if (to_ != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i >= 4 - count_) to_[(last - 3 + i) * stride_] = scores_[i];
      }
    }
    count_ = 0;
  }
  __device__ bool empty() const { return count_ == 0; }

 private:
  float* const to_;
  const std::int64_t stride_;
  const bool together_;
  int count_ = 0;         // not yet written
  float scores_[4] = {};  // the last of them is the newest
};

template <class Keys, int n>
class RowMath : MathWarp<Keys, n> {
  using Base = MathWarp<Keys, n>;

 public:
  __device__ RowMath(const ScoreParams& p, const Cta<Keys, n>& cta) : Base(p, cta) {}

  __device__ void run() {
    Base::for_each_segment([this](const Segment& segment) {
      if (segment.page_begin < segment.page_end) score(segment);
    });
  }

 private:
  using Base::address_of, Base::columns, Base::cta_, Base::group_, Base::k_steps, Base::key_step;
  using Base::lane_, Base::p_, Base::query_step, Base::ring_, Base::s_, Base::warp_;
  static_assert(!Keys::widens, "both operands are in shared memory");
  static constexpr int tiles = columns / 64;  // of 64 columns
  static constexpr int accumulators = 64;     // of a thread and tile
  static constexpr int own_columns = 2 * tiles;
  /// Lanes 4 g + c that end up with the same column.
  static constexpr int sharing = 4 / own_columns;

  __device__ void score(const Segment& segment) {
    ScoreRow row = row_of_lane(segment);
    const float factor = s_.factor[column_of_lane()];
    const std::int32_t seen_by_all = segment.visible(0);
    for (std::int32_t block = segment.page_begin; block < segment.page_end; ++block) {
      Base::await_page();
      float best[own_columns];
      const bool exists = seen_by_all - block * page_size < page_size
                              ? find_maxima<Edge::some>(block, best)
                              : find_maxima<Edge::all>(block, best);
      ring_.advance(p_.slots, 1);
      row.add(block, exists ? score_of(share(best), factor) : -INFINITY);
    }
    if (!row.empty()) row.flush(segment.page_end - 1);
  }

  /// Column 2 t + r of a thread, of the CTA's.
  __device__ int column(int own) const {
    return group_ * columns + own / 2 * 64 + 16 * warp_ + own % 2 * 8 + lane_ / 4;
  }
  /// The one that share() leaves to this lane.
  __device__ int column_of_lane() const { return column(lane_ % 4 / sharing); }

  __device__ ScoreRow row_of_lane(const Segment& segment) const {
    const ScoreView& scores = p_.scores;
    const int column = column_of_lane(), row = row_of(column, p_.head_factor);
    const bool wanted = column < segment.rows * p_.heads && lane_ % sharing == 0;
    float* const to = scores.data +
                      (segment.first_token + row - p_.window.first_token) * scores.token +
                      (column - row * p_.heads) * scores.head;
    return {wanted ? to : nullptr, scores.block};
  }

  /// Starts the products of 64 columns of this warpgroup with the ring's next page.
  __device__ void multiply(int tile, float (&sums)[accumulators]) {
    const std::uint32_t q =
        ptx::matrix_at(address_of(cta_.queries + (group_ * columns + tile * 64) * 128));
    const std::uint32_t keys = ptx::matrix_at(address_of(cta_.slot(ring_)));
#pragma unroll
    for (int step = 0; step < Keys::planes * k_steps; ++step) {
      const int k = step % k_steps;
      const std::uint32_t plane = ptx::step_of(step / k_steps * n * Keys::query_bytes);
      if constexpr (Keys::boxes == 1) {
        ptx::wgmma_e4m3(sums, q + query_step(k), keys + key_step(k), step > 0);
      } else {
        ptx::wgmma<ptx::Operand::bf16, 0>(sums, q + plane + query_step(k), keys + key_step(k),
                                          step > 0);
      }
    }
    ptx::wgmma_commit();
  }

  /// The largest products of the ring's next page in this thread; false where the page does not
  /// exist, which is found out beside its products, as it is the exception. No branch lies between
  /// them and their end, see Math.
  template <Edge edge>
  __device__ bool find_maxima(std::int32_t block, float (&best)[own_columns]) {
    float sums[tiles][accumulators];
    ptx::wgmma_fence();
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) multiply(tile, sums[tile]);
    const bool exists = Base::page_of_slot() >= 0;
    ptx::wgmma_wait<tiles - 1>();
    take_maxima<edge>(0, block, sums[0], best);
    if constexpr (tiles == 2) {
      ptx::wgmma_wait();
      Base::release();
      take_maxima<edge>(1, block, sums[1], best);
    } else {
      Base::release();
    }
    return exists;
  }

  template <Edge edge>
  __device__ void take_maxima(int tile, std::int32_t block, const float (&sums)[accumulators],
                              float (&best)[own_columns]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = 2 * tile + r;
      const std::int32_t seen =
          edge == Edge::all ? page_size : s_.visible[column(own)] - block * page_size;
      float largest[2];  // of even and of odd keys: two chains
#pragma unroll
      for (int j = 0; j < accumulators / 4; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float x = sums[4 * j + 2 * r + e];
          if (edge == Edge::some && 8 * j + 2 * (lane_ % 4) + e >= seen) x = -INFINITY;
          largest[e] = j == 0 ? x : larger(largest[e], x);
        }
      }
      best[own] = larger(largest[0], largest[1]);
    }
  }

  /// The largest of the four lanes' products, of the column that is this lane's. Each gives one
  /// half of what it holds for the other's other half.
  __device__ float share(const float (&best)[own_columns]) const {
    const bool upper = (lane_ & 2) != 0;
    float half[tiles];
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      const float mine = upper ? best[tiles + i] : best[i];
      const float other = upper ? best[i] : best[tiles + i];
      half[i] = larger(mine, __shfl_xor_sync(0xffffffffu, other, 2));
    }
    if constexpr (tiles == 1) return larger(half[0], __shfl_xor_sync(0xffffffffu, half[0], 1));
    const bool odd = (lane_ & 1) != 0;
    const float mine = odd ? half[tiles - 1] : half[0], other = odd ? half[0] : half[tiles - 1];
    return larger(mine, __shfl_xor_sync(0xffffffffu, other, 1));
  }
};

}  // namespace msa::cuda::sm90::index
