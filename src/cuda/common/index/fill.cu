// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/dependency.cuh"
#include "cuda/common/index/launch.h"
#include "cuda/common/index/plan.h"
#include "cuda/common/launch_behind.h"

/// \file
/// What the score kernel does not look at: −inf for the blocks behind those that a row sees.

namespace msa::cuda {
namespace {

constexpr int threads = 256;

/// A CTA a row.
__global__ __launch_bounds__(threads) void fill_kernel(const FillParams p) {
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

void launch_fill(const FillParams& p, const Origin& origin) {
  launch_behind(origin.op, origin.device, fill_kernel, p.window.tokens, threads, 0, origin.stream,
                p);
}

}  // namespace msa::cuda
