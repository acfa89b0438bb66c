// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/sm90/index/config.h"
#include "cuda/sm90/index/params.h"

/// \file
/// A CTA's view of its shared memory.

namespace msa::cuda::sm90::index {

template <class Keys, int n>
struct Cta {
  __device__ Cta(const ScoreParams& p, unsigned char* memory)
      : queries(memory),
        ring(memory + query_bytes<Keys, n>),
        widened(ring + p.slots * slot_bytes),
        shared(*reinterpret_cast<Shared<n>*>(widened + widened_ring_bytes<Keys, n>)) {}

  /// By one warp.
  __device__ void init_barriers(int slots) const {
    if (ptx::elect()) {
      constexpr bool ahead = widens_ahead<Keys, n>;
      init_ring(shared.fetched, slots, 1, ahead ? widening_warps : Team<n>::math_warps);
      if constexpr (ahead) {
        init_ring(shared.widened, widened_slots, widening_warps, Team<n>::math_warps);
      }
#pragma unroll
      for (int i = 0; i < segments_ahead; ++i) {
        ::cuda::ptx::mbarrier_init(&shared.segment_full[i], warp_size);
        ::cuda::ptx::mbarrier_init(
            &shared.segment_free[i],
            Team<n>::math_threads + warp_size * (ahead ? 1 + widening_warps : 1));
      }
      ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
    }
    __syncwarp();
  }

  __device__ unsigned char* slot(const ptx::RingPlace& place) const {
    return ring + place.slot * slot_bytes;
  }
  __device__ unsigned char* widened_slot(const ptx::RingPlace& place) const {
    return widened + place.slot * widened_bytes;
  }

  static constexpr std::size_t slot_bytes = Keys::boxes * box_bytes;

  unsigned char* queries;  // an operand of the products
  unsigned char* ring;
  unsigned char* widened;  // ring of the pages that are the other operand, where warps widen ahead
  Shared<n>& shared;

 private:
  /// `writers` and `readers`: arrivals that a slot takes to be full and free.
  __device__ static void init_ring(PageRing& pages, int slots, int writers, int readers) {
    for (int i = 0; i < slots; ++i) {
      ::cuda::ptx::mbarrier_init(&pages.full[i], writers);
      ::cuda::ptx::mbarrier_init(&pages.free[i], readers);
    }
  }
};

static_assert(segments_ahead == ptx::Turn::places);

}  // namespace msa::cuda::sm90::index
