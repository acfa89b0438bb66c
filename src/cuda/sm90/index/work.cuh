// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/slice.cuh"
#include "cuda/sm90/index/cta.cuh"

/// \file
/// The warp that finds which pages of which tiles a CTA scores, and hands them over.

namespace msa::cuda::sm90::index {

/// Hands segments over, by one warp.
template <class Keys, int n>
class Segments {
 public:
  __device__ explicit Segments(const Cta<Keys, n>& cta) : cta_(cta) {}

  __device__ void publish(const Segment& s) {
    ptx::wait(cta_.shared.segment_free[turn_.index], turn_.parity ^ 1);
    if (threadIdx.x % warp_size == 0) cta_.shared.segment[turn_.index] = s;
    __syncwarp();
    ptx::arrive(cta_.shared.segment_full[turn_.index]);
    turn_.advance();
  }

 private:
  const Cta<Keys, n>& cta_;
  ptx::Turn turn_;
};

/// Whole rows, a tile each, where lists are kept: this CTA's share of the call's.
template <class Keys, int n>
__device__ void publish_rows(const ScoreParams& p, const Cta<Keys, n>& cta) {
  Segments<Keys, n> segments(cta);
  for (std::int64_t token = blockIdx.x; token < p.window.tokens; token += gridDim.x) {
    segments.publish(row_segment(p, token));
  }
  segments.publish(Segment{});
}

/// The pages of this CTA's slice.
template <class Keys, int n>
__device__ void publish_slice(const ScoreParams& p, const Cta<Keys, n>& cta) {
  Segments<Keys, n> segments(cta);
  Slice<ScoreParams> slice(p);
  slice.begin(cta.shared.bucket_units);
  slice.find_segments([&](const Segment& s) {
    segments.publish(s);
    return true;
  });
  segments.publish(Segment{});
}

}  // namespace msa::cuda::sm90::index
