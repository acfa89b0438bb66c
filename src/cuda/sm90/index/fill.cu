// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/dependency.cuh"
#include "cuda/common/launch.h"
#include "cuda/sm90/index/launch.h"
#include "cuda/sm90/index/plan.h"

/// \file
/// What the score kernel does not look at: −inf for the blocks behind those that a row sees.

namespace msa::cuda::sm90::index {
namespace {

constexpr int threads = 256;

/// A CTA a row.
__global__ __launch_bounds__(threads) void fill_kernel(const ScoreParams p) {
  meet_dependencies();
  for (std::int64_t row = blockIdx.x; row < p.window.tokens; row += gridDim.x) {
    const RowPlace place = find_row(p.batch, p.window.first_token + row);
    const std::int64_t first = min(pages_of(place.visible), p.scores.blocks);
    const std::int64_t rest = (p.scores.blocks - first) * p.heads;
    float* const to = p.scores.data + row * p.scores.token;
    for (std::int64_t i = threadIdx.x; i < rest; i += threads) {
      const std::int64_t block = first + i / p.heads, head = i % p.heads;
      to[head * p.scores.head + block * p.scores.block] = -INFINITY;
    }
  }
}

}  // namespace

void launch_fill(const ScoreParams& p, const Origin& origin) {
  launch_dependent(origin.op, fill_kernel, p.window.tokens, threads, 0, origin.stream, p);
}

}  // namespace msa::cuda::sm90::index
