// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/prefill/fetch.cuh"
#include "cuda/sm90/prefill/math.cuh"
#include "cuda/sm90/prefill/tile.cuh"

/// \file
/// The prefill kernel: two warpgroups compute, two warps work ahead of them, also across tiles.

namespace msa::cuda::sm90::prefill {

/// Nothing of the calls before is read, and nothing written, until the grid's dependencies are met;
/// the call behind may start to set itself up at once.
template <ptx::Operand product>
__global__ __launch_bounds__(threads, 1) void prefill_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Cta cta(p, memory);
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  constexpr int fetch_warp = math_warps, list_warp = fetch_warp + 1;
  if (warp == fetch_warp) cta.init_barriers();
  __syncthreads();
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
  if (warp >= math_warps) {
    ptx::keep_registers<ahead_registers>();
    if (warp == fetch_warp) Fetch(p, cta).run();
    if (warp == list_warp) make_lists(p, cta);
  } else {
    ptx::take_registers<math_registers>();
    Math<product>(p, cta).run();
  }
}

}  // namespace msa::cuda::sm90::prefill
