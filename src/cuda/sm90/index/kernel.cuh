// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/dependency.cuh"
#include "cuda/sm90/index/fetch.cuh"
#include "cuda/sm90/index/math.cuh"
#include "cuda/sm90/index/row_math.cuh"
#include "cuda/sm90/index/sink.cuh"
#include "cuda/sm90/index/widen.cuh"
#include "cuda/sm90/index/work.cuh"

/// \file
/// The score kernel: a warpgroup or two compute, two warps or four work ahead of them.

namespace msa::cuda::sm90::index {

/// Nothing of the calls before is read, and nothing written, until the grid's dependencies are met;
/// the call behind may start to set itself up at once.
template <class Keys, int n, bool keeps_lists>
__global__ __launch_bounds__(Team<n>::threads, Team<n>::ctas) void score_kernel(
    const __grid_constant__ ScoreParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Cta<Keys, n> cta(p, memory);
  constexpr int fetch_warp = Team<n>::math_warps, slice_warp = fetch_warp + 1;
  constexpr int first_widening_warp = slice_warp + 1;
  static_assert(!widens_ahead<Keys, n> ||
                first_widening_warp + widening_warps == Team<n>::threads / warp_size);
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  if (warp == fetch_warp) {
    Fetch<Keys, n>(p, cta).prepare();
    cta.init_barriers(p.slots);
  }
  meet_dependencies();
  if constexpr (!keeps_lists) count_units(p, cta.shared.bucket_units);
  __syncthreads();
  if (warp >= fetch_warp) {
    if constexpr (Team<n>::hands_over) ptx::keep_registers<Team<n>::ahead_registers>();
    if (warp == fetch_warp) Fetch<Keys, n>(p, cta).run();
    if (warp == slice_warp) {
      if constexpr (keeps_lists) {
        publish_rows(p, cta);
      } else {
        publish_slice(p, cta);
      }
    }
    if constexpr (widens_ahead<Keys, n>) {
      if (warp >= first_widening_warp) Widen<Keys, n>(p, cta, warp - first_widening_warp).run();
    }
  } else {
    if constexpr (Team<n>::hands_over) ptx::take_registers<Team<n>::math_registers>();
    if constexpr (Team<n>::warpgroups == 2) {
      RowMath<Keys, n>(p, cta).run();
    } else {
      using Sink = std::conditional_t<keeps_lists, ListSink<n>, ScoreSink<n>>;
      Math<Keys, n, Sink>(p, cta).run();
    }
  }
}

}  // namespace msa::cuda::sm90::index
