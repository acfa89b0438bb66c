// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/wgmma.cuh"
#include "cuda/sm90/index/cta.cuh"
#include "cuda/sm90/index/queries.cuh"

/// \file
/// What the warpgroups that compute have in common, whichever way their products lie.

namespace msa::cuda::sm90::index {

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

/// Which keys of a page count.
enum class Edge { none, some, all };

template <class Keys, int n>
class MathWarp {
 protected:
  __device__ MathWarp(const ScoreParams& p, const Cta<Keys, n>& cta)
      : p_(p),
        cta_(cta),
        s_(cta.shared),
        group_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / warpgroup, 0)),
        warp_(static_cast<int>(threadIdx.x) / warp_size % warpgroup_warps),
        lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  static constexpr int columns = Team<n>::columns;
  static constexpr int k_steps = Keys::query_bytes / 32;

  /// score(segment) for each of the CTA's, whose queries are in shared memory then.
  template <class Score>
  __device__ void for_each_segment(Score score) {
    for (ptx::Turn turn;; turn.advance()) {
      ptx::wait(s_.segment_full[turn.index], turn.parity);
      const Segment segment = s_.segment[turn.index];
      ptx::arrive(s_.segment_free[turn.index]);
      if (segment.rows == 0) return;
      Queries<Keys, n>(p_, cta_).load(segment);
      ptx::sync_threads(barriers::math, Team<n>::math_threads);  // all columns are here
      score(segment);
      ptx::sync_threads(barriers::math, Team<n>::math_threads);  // nobody reads them any more
    }
  }

  /// Waits for the ring's next page.
  __device__ void await_page() const {
    ptx::wait(s_.slot_full[ring_.slot], ring_.parity);
    __syncwarp();
  }
  /// Its number, −1 where the block's cell names none. Read by the lane that lets go of the slot:
  /// racecheck does not follow a warp's other lanes there.
  __device__ std::int32_t page_of_slot() const {
    const std::int32_t page = lane_ == 0 ? s_.slot_page[ring_.slot] : 0;
    return __shfl_sync(0xffffffffu, page, 0);
  }

  /// This warp is done with the ring's next page.
  __device__ void release() const {
    __syncwarp();
    if (lane_ == 0) ptx::arrive(s_.slot_free[ring_.slot]);
    __syncwarp();
  }

  /// The same for all lanes, and known to be.
  __device__ std::uint32_t address_of(const unsigned char* memory) const {
    return __shfl_sync(0xffffffffu, ptx::shared_address(memory), 0);
  }
  /// Where k step `k` of the queries is.
  __device__ static std::uint32_t query_step(int k) {
    return ptx::step_of(k / 4 * (n * 128) + k % 4 * 32);
  }
  /// And of the keys, where they are no operand in registers.
  __device__ static std::uint32_t key_step(int k) {
    return ptx::step_of(k / 4 * static_cast<int>(box_bytes) + k % 4 * 32);
  }

  const ScoreParams& p_;
  const Cta<Keys, n>& cta_;
  Shared<n>& s_;
  const int group_, warp_, lane_;
  ptx::RingPlace ring_;
};

}  // namespace msa::cuda::sm90::index
