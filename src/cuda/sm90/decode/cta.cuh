// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/block_list.cuh"
#include "cuda/common/ptx/barrier.cuh"
#include "cuda/sm90/decode/config.h"
#include "cuda/sm90/decode/params.h"

/// \file
/// A CTA's view of its shared memory and of its share of the work.

namespace msa::cuda::sm90::decode {

template <int n>
struct Cta {
  __device__ Cta(const Params& p, unsigned char* memory)
      : ring(memory), shared(*reinterpret_cast<Shared<n>*>(memory + p.slots * slot_bytes)) {
    second = reinterpret_cast<unsigned char*>(&shared + 1);
    auto* bits = reinterpret_cast<std::uint32_t*>(
        second +
        (p.cluster == 1 ? second_bytes<n>(1) : p.received_columns * sizeof(PartialColumn)));
    const auto array = [&](int i) {
      return reinterpret_cast<std::int32_t*>(bits + 2 * bitmap_words) + i * p.capacity;
    };
    scratch = {array(0), array(1), array(2), bits, bits + bitmap_words};
    lists_begin = array(3);
    capacity = p.capacity;
    cluster_rank = static_cast<int>(blockIdx.x) & (p.cluster - 1);
    share = segments(n) >> p.cluster_log2;
    first_segment = cluster_rank * share;
    end_segment = first_segment + share;
  }

  /// By one warp.
  __device__ void init_barriers() const {
    if (ptx::elect()) {
#pragma unroll
      for (int i = 0; i < max_slots; ++i) {
        ::cuda::ptx::mbarrier_init(&shared.slot_full[i], 1);
        ::cuda::ptx::mbarrier_init(&shared.slot_free[i], math_warps);
      }
      ::cuda::ptx::mbarrier_init(&shared.received, 1);
      ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
    }
    __syncwarp();
  }

  __device__ unsigned char* slot(const ptx::RingPlace& place) const {
    return ring + place.slot * slot_bytes;
  }

  /// Of items of this parity.
  __device__ ListView list(int parity) const {
    std::int32_t* ids = lists_begin + 2 * parity * capacity;
    return {ids, ids + capacity};
  }
  __device__ unsigned char* queries(int parity) const {
    return parity == 0 ? shared.queries : second;
  }

  /// What a cluster's CTA receives for its columns, `count` partial results of each group.
  __device__ PartialColumn& received(int own_column, int group, int partial, int count) const {
    return reinterpret_cast<PartialColumn*>(
        second)[(own_column * groups + group) * count + partial];
  }

  /// This CTA's pages of a list of `length`.
  __device__ int first_page(int length) const { return segment_begin(first_segment, length, n); }
  __device__ int end_page(int length) const { return segment_begin(end_segment, length, n); }

  unsigned char* ring;
  Shared<n>& shared;
  unsigned char* second;  // see second_bytes()
  ListScratch scratch;
  std::int32_t* lists_begin;
  int capacity;
  int cluster_rank;
  int share;  // segments of this CTA
  int first_segment, end_segment;
};

}  // namespace msa::cuda::sm90::decode
