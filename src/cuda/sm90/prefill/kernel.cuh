// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/dependency.cuh"
#include "cuda/sm90/prefill/fetch.cuh"
#include "cuda/sm90/prefill/math.cuh"
#include "cuda/sm90/prefill/tile.cuh"
#include "cuda/sm90/prefill/widen.cuh"

/// \file
/// The prefill kernel: two warpgroups compute, a warpgroup or two work ahead of them, also across
/// tiles.

namespace msa::cuda::sm90::prefill {

/// Nothing of the calls before is read, and nothing written, until the grid's dependencies are met;
/// the call behind may start to set itself up at once.
template <DType type>
__global__ __launch_bounds__(Team<type>::threads,
                             1) void prefill_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Cta<type> cta(p, memory);
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  constexpr int fetch_warp = math_warps, list_warp = fetch_warp + 1, widen_warp = list_warp + 1;
  if (warp == fetch_warp) cta.init_barriers();
  __syncthreads();
  meet_dependencies();
  if (warp >= math_warps) {
    ptx::keep_registers<Team<type>::ahead_registers>();
    if (warp == fetch_warp) Fetch<type>(p, cta).run();
    if (warp == list_warp) make_lists(p, cta);
    if constexpr (Team<type>::widens) {
      if (warp >= widen_warp) Widen<type>(p, cta, warp - widen_warp).run();
    }
  } else {
    ptx::take_registers<Team<type>::math_registers>();
    Math<type>(p, cta).run();
  }
}

}  // namespace msa::cuda::sm90::prefill
