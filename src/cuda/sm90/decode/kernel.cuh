// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/decode/fetch.cuh"
#include "cuda/sm90/decode/math.cuh"
#include "cuda/sm90/decode/write.cuh"

/// \file
/// The decode kernel: four warps compute, one fetches ahead of them, also across items.

namespace msa::cuda::sm90::decode {

template <class Cache, int n>
__global__ __launch_bounds__(threads, ctas_per_sm) void decode_kernel(
    const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Cta<n> cta(p, memory);
  if (threadIdx.x == 0) cta.init_barriers(p);
  __syncthreads();
  // The kernel before may have written anything that is read from here on; the one behind may
  // start to set itself up.
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();

  const std::int64_t first = blockIdx.x / p.cluster;
  const std::int64_t step = gridDim.x / p.cluster;
  if (threadIdx.x >= math_threads) {
    ptx::keep_registers<fetch_registers>();
    const bool fetches = threadIdx.x < math_threads + warp_size;
    Fetch<Cache, n> fetch(p, cta);
    for (std::int64_t i = first; i < p.items; i += step) {
      if (fetches) fetch.item(i);
      if (p.cluster > 1) {
        ptx::sync_cluster();
        ptx::sync_cluster();
      }
    }
  } else {
    ptx::take_registers<math_registers>();
    Math<Cache, n> math(p, cta);
    for (std::int64_t i = first; i < p.items; i += step) {
      const Item item(p, i);
      math.item(item);
      const Write<Cache, n> write(p, cta, item);
      if (p.cluster == 1) {
        write.own();
      } else {
        ptx::sync_cluster();  // every CTA's partial results are complete
        write.share();
        ptx::sync_cluster();  // and have been read
      }
    }
  }
}

}  // namespace msa::cuda::sm90::decode
