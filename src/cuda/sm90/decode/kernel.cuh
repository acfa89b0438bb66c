// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/dependency.cuh"
#include "cuda/sm90/decode/fetch.cuh"
#include "cuda/sm90/decode/math.cuh"
#include "cuda/sm90/decode/queries.cuh"
#include "cuda/sm90/decode/write.cuh"

/// \file
/// The decode kernel: four warps compute, four work ahead of them, also across items.

namespace msa::cuda::sm90::decode {

/// The items of a CTA: every step-th from the first. In a cluster it has one: the meeting of the
/// CTAs, the count of what they receive and the place where it lies are for one.
__device__ inline int first_item(const Params& p) {
  return static_cast<int>(blockIdx.x) >> p.cluster_log2;
}
__device__ inline int item_step(const Params& p) {
  return static_cast<int>(gridDim.x) >> p.cluster_log2;
}

/// Runs `worker`, of a warp that works ahead, over the CTA's items.
template <class Worker>
__device__ inline void run_ahead(const Params& p, Worker worker) {
  const int first = first_item(p), step = item_step(p);
  int parity = 0;
  for (int i = first; i < p.items; i += step) {
    if (i >= first + items_ahead * step) ptx::sync_threads(barriers::used + parity, threads);
    worker.run(Item(p, i), parity);
    parity ^= 1;
  }
}

/// The warpgroup that works ahead: lists and pages, and queries.
template <class Cache, int n>
__device__ inline void work_ahead(const Params& p, unsigned char* memory) {
  const Cta<n> cta(p, memory);
  const int warp = static_cast<int>(threadIdx.x) / warp_size - math_warps;
  // The chain of a small batch begins with the lists: other warps prepare what that one needs.
  constexpr int list_warp = 0, first_query_warp = 1, last_query_warp = query_warps;
  if (warp == first_query_warp) {
    cta.init_barriers();
    ptx::arrive_threads(barriers::ring, 2 * warp_size);
  }
  if (warp == last_query_warp) prefetch(p, first_item(p));
  if (p.cluster > 1) ptx::arrive_cluster();
  meet_dependencies();
  if (warp == list_warp) {
    run_ahead(p, Fetch<Cache, n>(p, cta));
  } else {
    run_ahead(p, Queries<Cache, n>(p, cta, warp - first_query_warp));
  }
  if (p.cluster > 1) ptx::wait_cluster();
}

/// The warpgroup that computes and writes.
template <class Cache, int n>
__device__ inline void compute(const Params& p, unsigned char* memory) {
  const Cta<n> cta(p, memory);
  const int first = first_item(p), step = item_step(p);
  if (p.cluster > 1) ptx::arrive_cluster();
  meet_dependencies();
  Math<Cache, n> math(p, cta);
  int parity = 0;
  for (int i = first; i < p.items; i += step) {
    const Item item(p, i);
    math.sum(item, parity);
    if (i + items_ahead * step < p.items) {
      ptx::arrive_threads(barriers::used + parity, threads);
    }
    if (p.cluster == 1) {
      math.write(item);
    } else {
      write_share<Cache>(p, cta, item, math.length());
    }
    parity ^= 1;
  }
}

/// Nothing of the calls before is read, and nothing written, until the grid's dependencies are met;
/// the call behind may start to set itself up at once.
template <class Cache, int n>
__global__ __launch_bounds__(threads,
                             ctas_per_sm) void decode_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  if (threadIdx.x >= math_threads) {
    ptx::keep_registers<ahead_registers(n, Cache::widens)>();
    work_ahead<Cache, n>(p, memory);
  } else {
    ptx::take_registers<math_registers(n, Cache::widens)>();
    compute<Cache, n>(p, memory);
  }
}

}  // namespace msa::cuda::sm90::decode
