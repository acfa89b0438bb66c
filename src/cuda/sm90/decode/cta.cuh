// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/barrier.cuh"
#include "cuda/sm90/decode/config.h"
#include "cuda/sm90/decode/item.cuh"
#include "cuda/sm90/decode/params.h"

/// \file
/// A CTA's view of its shared memory and of its share of the work.

namespace msa::cuda::sm90::decode {

template <int n>
struct Cta {
  __device__ Cta(const Params& p, unsigned char* memory)
      : ring(memory), shared(*reinterpret_cast<Shared<n>*>(memory + p.slots * slot_bytes)) {
    auto* bits = reinterpret_cast<std::uint32_t*>(&shared + 1);
    const auto array = [&](int i) {
      return reinterpret_cast<std::int32_t*>(bits + 2 * bitmap_words) + i * p.capacity;
    };
    scratch = {array(0), array(1), array(2), bits, bits + bitmap_words};
    lists_begin = array(3);
    capacity = p.capacity;
    cluster_rank = static_cast<int>(blockIdx.x) & (p.cluster - 1);
    const int share = segments(n) >> p.cluster_log2;
    first_segment = cluster_rank * share;
    end_segment = first_segment + share;
  }

  /// By the first threads of the CTA, a few barriers each: one after the other they take 0.3 µs.
  __device__ void init_barriers(int thread) const {
    if (thread < max_slots) {
      ::cuda::ptx::mbarrier_init(&shared.slot_full[thread], 1);
      ::cuda::ptx::mbarrier_init(&shared.slot_free[thread], math_warps);
    }
    if (thread < lists) {
      ::cuda::ptx::mbarrier_init(&shared.list_full[thread], 1);
      ::cuda::ptx::mbarrier_init(&shared.list_free[thread], math_warps);
    }
    if (thread < max_slots) {
      ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
    }
  }

  __device__ unsigned char* slot(const ptx::RingPlace& place) const {
    return ring + place.slot * slot_bytes;
  }

  __device__ ListView list(const ptx::RingPlace& place) const {
    std::int32_t* ids = lists_begin + 2 * place.slot * capacity;
    return {ids, ids + capacity};
  }

  /// Cells of a partial result, see partial_stride.
  __device__ float* partial(int slot) const {
    return reinterpret_cast<float*>(ring + slot * partial_bytes(n));
  }

  /// This CTA's pages of a list of `length`.
  __device__ int first_page(int length) const { return segment_begin(first_segment, length, n); }
  __device__ int end_page(int length) const { return segment_begin(end_segment, length, n); }

  unsigned char* ring;
  Shared<n>& shared;
  ListScratch scratch;
  std::int32_t* lists_begin;
  int capacity;
  int cluster_rank;
  int first_segment, end_segment;
};

}  // namespace msa::cuda::sm90::decode
