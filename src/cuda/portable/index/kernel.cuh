// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/dependency.cuh"
#include "cuda/portable/index/math.cuh"
#include "cuda/portable/index/sink.cuh"
#include "cuda/portable/index/work.cuh"

/// \file
/// The score kernel: one warp finds segments, and all warps score them.

namespace msa::cuda::portable::index {

template <class Keys, int n, bool keeps_lists>
__global__ __launch_bounds__(Team<Keys, n>::threads, Team<Keys, n>::ctas) void score_kernel(
    const __grid_constant__ ScoreParams p) {
#if __CUDA_ARCH__ >= 890
  constexpr bool has_products = true;
#else
  constexpr bool has_products = Keys::query_bytes == 256;  // no e4m3 before SM89
#endif
  if constexpr (has_products) {
    extern __shared__ __align__(1024) unsigned char ring[];
    using Sizes = Team<Keys, n>;
    auto& s = *reinterpret_cast<Shared<Keys, n>*>(ring + Sizes::slots * Sizes::slot_bytes);
    auto* const lists = reinterpret_cast<BlockKey*>(&s + 1);
    const bool finds = threadIdx.x < warp_size;
    meet_dependencies();
    if constexpr (keeps_lists) {
      if (threadIdx.x == 0) s.work.slice.at = blockIdx.x;
      __syncwarp();
    } else {
      count_units(p, s.bucket_units);
      if (!few_requests(p)) __syncthreads();
      if (finds) begin_slice(p, s.work, s.bucket_units);
    }
    for (;;) {
      if (finds) {
        if constexpr (keeps_lists) {
          find_rows(p, s.work);
        } else {
          find_segments(p, s.work);
        }
      }
      __syncthreads();
      const int count = s.work.count;
      if (count == 0) return;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const Segment& segment = s.work.segment[i];
        Math<Keys, n> math(p, ring, s);
        if constexpr (keeps_lists) {
          Lists<Keys, n> rows(p, segment, lists);
          if (segment.page_begin < segment.page_end) {
            math.score(segment,
                       [&](std::int32_t first, std::int32_t end) { rows.take(math, first, end); });
          }
          rows.write();
        } else {
          math.score(segment, [&](std::int32_t first, std::int32_t end) {
            write_scores(p, segment, math, first, end);
          });
        }
      }
      __syncthreads();  // the segments may be replaced
    }
  }
}

}  // namespace msa::cuda::portable::index
