// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda/ptx>

#include <cstdint>

/// \file
/// Barriers in shared memory (mbarrier), which count arrivals and bytes that the copy engine wrote,
/// and barriers of a part of the CTA or of the whole cluster.

namespace msa::cuda::ptx {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void arrive(std::uint64_t& barrier) { ::cuda::ptx::mbarrier_arrive(&barrier); }

/// Arrives, and makes the phase wait for `bytes` more.
__device__ inline void arrive_expecting(std::uint64_t& barrier, std::uint32_t bytes) {
  ::cuda::ptx::mbarrier_arrive_expect_tx(::cuda::ptx::sem_release, ::cuda::ptx::scope_cta,
                                         ::cuda::ptx::space_shared, &barrier, bytes);
}

/// Returns when the phase of this parity is over. A new barrier's phase has parity 0, and the one
/// "before" it, of parity 1, is over.
__device__ inline void wait(std::uint64_t& barrier, std::uint32_t parity) {
  while (!::cuda::ptx::mbarrier_try_wait_parity(&barrier, parity)) {
  }
}

/// What this thread wrote to shared memory becomes visible to the copy engine and the tensor cores.
__device__ inline void fence_async_proxy() {
  ::cuda::ptx::fence_proxy_async(::cuda::ptx::space_shared);
}

/// A barrier of `threads` threads; `id` is 1 to 15 (0 is __syncthreads).
__device__ inline void sync_threads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// A barrier of all threads of the cluster, reached by whole warps; shared memory written before is
/// visible after.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

/// Where the same variable lies in the shared memory of the cluster's CTA `rank`.
template <class T>
__device__ inline const T& in_cta(const T& variable, int rank) {
  return *static_cast<const T*>(__cluster_map_shared_rank(&variable, static_cast<unsigned>(rank)));
}

/// A place in a ring of slots, and the parity of its turn.
struct RingPlace {
  int slot = 0;
  std::uint32_t parity = 0;

  /// `count` may be more than a round.
  __device__ void advance(int slots, int count) {
    slot += count;
    while (slot >= slots) {
      slot -= slots;
      parity ^= 1;
    }
  }
};

}  // namespace msa::cuda::ptx
