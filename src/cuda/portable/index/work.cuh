// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/slice.cuh"
#include "cuda/portable/index/config.h"
#include "cuda/portable/index/params.h"

/// \file
/// Which pages of which tiles a CTA scores, some segments at a time, by one warp.

namespace msa::cuda::portable::index {

/// Where the CTA's slice of all units begins. `bucket_units`: what count_units() has left.
__device__ inline void begin_slice(const ScoreParams& p, Work& work,
                                   const std::int64_t* bucket_units) {
  Slice<ScoreParams> slice(p);
  slice.begin(bucket_units);
  if (threadIdx.x % warp_size == 0) work.slice = slice.state;
  __syncwarp();
}

/// The next segments of the slice; none where it has ended.
__device__ inline void find_segments(const ScoreParams& p, Work& work) {
  Slice<ScoreParams> slice(p);
  slice.state = work.slice;
  __syncwarp();
  int count = 0;
  slice.find_segments([&](const Segment& s) {
    if (threadIdx.x % warp_size == 0) work.segment[count] = s;
    return ++count < segments_ahead;
  });
  if (threadIdx.x % warp_size == 0) {
    work.slice = slice.state;
    work.count = count;
  }
  __syncwarp();
}

/// Whole rows, a tile each, where lists are kept: this CTA's share of the call's. The next ones;
/// `work.slice.at` is the next token.
__device__ inline void find_rows(const ScoreParams& p, Work& work) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t token = work.slice.at + lane * static_cast<std::int64_t>(gridDim.x);
  const bool here = lane < segments_ahead && token < p.window.tokens;
  if (here) work.segment[lane] = row_segment(p, token);
  const int count = __popc(__ballot_sync(0xffffffffu, here));
  if (lane == 0) {
    work.count = count;
    work.slice.at += count * static_cast<std::int64_t>(gridDim.x);
  }
  __syncwarp();
}

}  // namespace msa::cuda::portable::index
