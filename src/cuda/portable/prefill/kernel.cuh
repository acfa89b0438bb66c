// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/dependency.cuh"
#include "cuda/portable/prefill/fetch.cuh"
#include "cuda/portable/prefill/math.cuh"
#include "cuda/portable/prefill/tile.cuh"

/// \file
/// The prefill kernel: a CTA computes one tile; all of its threads load and compute.

namespace msa::cuda::portable::prefill {

/// Half page by half page. 16-bit caches: the next one is on its way while one is computed.
/// 8-bit caches: the next two are.
template <DType type>
__device__ inline void sum_pages(const Params& p, const Cta<type>& cta, Math<type>& math) {
  constexpr int ahead = Ring<type>::widens ? 2 : 1;
  const Fetch<type> fetch(p, cta);
  const auto ask = [&](int step) {
    if (step < cta.tile.steps) fetch.ask(step);
    ptx::commit_copies();
  };
#pragma unroll
  for (int step = 0; step < ahead; ++step) ask(step);
  for (int step = 0; step < cta.tile.steps; ++step) {
    ptx::wait_copies<ahead - 1>();
    __syncthreads();  // the half page is here for all, and nobody needs the one before
    if constexpr (Ring<type>::widens) {
      fetch.widen(step);
      __syncthreads();
    }
    ask(step + ahead);
    math.add(step, fetch.operands(step));
  }
}

/// A tile a CTA. Nothing of the calls before is read, and nothing written, until the grid's
/// dependencies are met.
template <DType type>
__global__ __launch_bounds__(threads,
                             ctas_per_sm) void prefill_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Cta<type> cta(memory);
  meet_dependencies();
  Tile tile{find_tile(p, p.first_item + blockIdx.x)};
  if (tile.rows == 0) return;
  Math<type> math(p, cta);
  if (threadIdx.x < warp_size) {
    make_list(p, cta, tile);
    if (threadIdx.x == 0) cta.tile = tile;
  }
  math.begin(tile);
  __syncthreads();  // the list is made, and nobody needs the memory that it was made in
  sum_pages(p, cta, math);
  math.write();
}

}  // namespace msa::cuda::portable::prefill
