// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/decode/fetch.cuh"
#include "cuda/sm90/decode/math.cuh"
#include "cuda/sm90/decode/write.cuh"

/// \file
/// The decode kernel: four warps compute, one fetches ahead of them, also across items.

namespace msa::cuda::sm90::decode {

template <class Cache, int n>
__global__ __launch_bounds__(threads,
                             ctas_per_sm) void decode_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Cta<n> cta(p, memory);
  cta.init_barriers(static_cast<int>(threadIdx.x));
  if (threadIdx.x >= math_threads) prefetch(p, static_cast<int>(blockIdx.x) >> p.cluster_log2);
  __syncthreads();
  // The kernel before may have written anything that is read from here on; the one behind may
  // start to set itself up.
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();

  const int first = static_cast<int>(blockIdx.x) >> p.cluster_log2;
  const int step = static_cast<int>(gridDim.x) >> p.cluster_log2;
  if (threadIdx.x >= math_threads) {
    ptx::keep_registers<fetch_registers>();
    const bool fetches = threadIdx.x < math_threads + warp_size;
    Fetch<Cache, n> fetch(p, cta);
    for (int i = first; i < p.items; i += step) {
      if (fetches) fetch.run(i);
      if (p.cluster > 1) {
        ptx::sync_cluster();
        ptx::sync_cluster();
      }
    }
  } else {
    ptx::take_registers<math_registers>();
    Math<Cache, n> math(p, cta);
    for (int i = first; i < p.items; i += step) {
      const Item item(p, i);
      math.sum(item);
      if (p.cluster == 1) {
        math.write(item);
      } else {
        math.publish();
        ptx::sync_cluster();  // every CTA's partial results are complete
        write_share(p, cta, item, math.length());
        ptx::sync_cluster();  // and have been read
      }
    }
  }
}

}  // namespace msa::cuda::sm90::decode
