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

/// The same, for bytes that other CTAs of the cluster sent.
__device__ inline void wait_sent(std::uint64_t& barrier, std::uint32_t parity) {
  while (!::cuda::ptx::mbarrier_try_wait_parity(::cuda::ptx::sem_acquire,
                                                ::cuda::ptx::scope_cluster, &barrier, parity)) {
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

/// Whole warps arrive without waiting; what they wrote is visible to the threads that sync.
__device__ inline void arrive_threads(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// True in one thread of a converged warp. The compiler knows that it is one: it issues copies and
/// barrier operations of that thread without a loop over the lanes, which takes 0.05 µs for each.
__device__ inline bool elect() {
  std::uint32_t elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

/// A barrier of all threads of the cluster, reached by whole warps. Arriving makes initialized
/// barriers visible (with fence_mbarrier_init before it), and nothing else: a release of all memory
/// would wait for every load and store under way, half a microsecond.
__device__ inline void arrive_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void wait_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Address of this CTA's `variable` in the shared memory of the cluster's CTA `rank`.
__device__ inline std::uint32_t cluster_address(const void* variable, int rank) {
  std::uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(variable)), "r"(rank));
  return address;
}

/// Stores into a CTA of the cluster; `barrier`, of the same CTA, counts the bytes as they arrive.
__device__ inline void send(std::uint32_t to, const float4& x, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
      : "memory");
}
__device__ inline void send(std::uint32_t to, float x, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x),
      "r"(barrier)
      : "memory");
}

/// A place in a ring of slots, and the parity of its turn.
struct RingPlace {
  int slot = 0;
  std::uint32_t parity = 0;

  /// By at most a round.
  __device__ void advance(int slots, int count) {
    slot += count;
    const bool wraps = slot >= slots;
    slot -= wraps ? slots : 0;
    parity ^= wraps ? 1 : 0;
  }
};

/// A place of two, and the parity of its turn.
struct Turn {
  static constexpr int places = 2;
  int index = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    index ^= 1;
    parity ^= index == 0 ? 1 : 0;
  }
};

}  // namespace msa::cuda::ptx
