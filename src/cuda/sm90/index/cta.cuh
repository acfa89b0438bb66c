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
        shared(*reinterpret_cast<Shared<n>*>(ring + p.slots * slot_bytes)) {}

  /// By one warp.
  __device__ void init_barriers(int slots) const {
    if (ptx::elect()) {
      for (int i = 0; i < slots; ++i) {
        ::cuda::ptx::mbarrier_init(&shared.slot_full[i], 1);
        ::cuda::ptx::mbarrier_init(&shared.slot_free[i], Team<n>::math_warps);
      }
#pragma unroll
      for (int i = 0; i < segments_ahead; ++i) {
        ::cuda::ptx::mbarrier_init(&shared.segment_full[i], warp_size);
        ::cuda::ptx::mbarrier_init(&shared.segment_free[i], Team<n>::math_threads + warp_size);
      }
      ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
    }
    __syncwarp();
  }

  __device__ unsigned char* slot(const ptx::RingPlace& place) const {
    return ring + place.slot * slot_bytes;
  }

  static constexpr std::size_t slot_bytes = Keys::boxes * box_bytes;

  unsigned char* queries;  // an operand of the products
  unsigned char* ring;
  Shared<n>& shared;
};

static_assert(segments_ahead == ptx::Turn::places);

}  // namespace msa::cuda::sm90::index
