// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cuda/common/launch.h"
#include "cuda/sm90/index/launch.h"
#include "cuda/sm90/index/plan.h"
#include "cuda/sm90/index/top_list.cuh"

/// \file
/// The select kernel: lists from scores. A warp looks at a row and list, or, where there are few,
/// eight of them share its blocks.

namespace msa::cuda::sm90::index {
namespace {

constexpr int warps = 8;
/// Rows and lists from which on a warp does one alone: there are enough to fill the device.
constexpr std::int64_t many_items = 1024;

/// Candidates of a warp that are not in its list yet: up to 31 that wait, and 32 new ones.
constexpr int waiting = 2 * warp_size;

template <int parts>
struct SelectShared {
  BlockKey waiting[warps][index::waiting];
  BlockKey lists[warps][parts * warp_size];
};

/// Blocks [begin, end) of a row that scores decide on, for one list.
class RowScores {
 public:
  __device__ RowScores(const SelectParams& p, std::int64_t token, std::int64_t list)
      : from_(p.scores.data + token * p.scores.token +
              (p.rule.reduce_heads ? 0 : list * p.scores.head)),
        block_(p.scores.block),
        head_(p.scores.head),
        heads_(p.rule.reduce_heads ? p.heads : 1) {}

  __device__ float operator[](std::int64_t block) const {
    const float* at = from_ + block * block_;
    float score = *at;
    for (int head = 1; head < heads_; ++head) score = larger_score(score, at[head * head_]);
    return score;
  }

 private:
  const float* from_;
  std::int64_t block_, head_;
  int heads_;
};

/// Adds the candidates of blocks [begin, end) to a list of which the last `open` places are not
/// taken by forced blocks.
template <int parts>
__device__ void choose(const RowScores& scores, const RowOrder& order, std::int64_t begin,
                       std::int64_t end, int open, BlockKey* waiting_keys, TopList<parts>& best) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  constexpr int ahead = 4;  // loads under way together
  // Of 32 lanes' largest scores, as many as there are places are at least as large as the last of
  // them: smaller scores need no look. −inf and NaN say nothing here. A few blocks are soon sorted.
  float least = -INFINITY;
  if (open <= warp_size && end - begin > 2 * warp_size) {
    float largest = -INFINITY;
#pragma unroll 2 * ahead
    for (std::int64_t block = begin + lane; block < end; block += warp_size) {
      largest = fmaxf(largest, scores[block]);
    }
    least = __shfl_sync(0xffffffffu, sort_lanes(largest, true), open - 1);
  }
  int count = 0;
  const auto add_waiting = [&](int taken) {
    __syncwarp();
    const BlockKey key = lane < taken ? waiting_keys[lane] : 0;
    const BlockKey rest = waiting_keys[warp_size + lane];
    __syncwarp();
    waiting_keys[lane] = rest;
    __syncwarp();
    best.add_sorted(sort_lanes(key, true));
    count -= taken;
  };
#pragma unroll ahead
  for (std::int64_t first = begin; first < end; first += warp_size) {
    const std::int64_t block = first + lane;
    const float score = block < end ? scores[block] : NAN;
    const bool enters = block < end && (score >= least || least == -INFINITY);
    const unsigned entering = __ballot_sync(0xffffffffu, enters);
    if (entering == 0) continue;
    const int place = count + __popc(entering & ((1u << lane) - 1));
    if (enters) waiting_keys[place] = order.key(block, score);
    count += __popc(entering);
    if (count >= warp_size) add_waiting(warp_size);
  }
  if (count > 0) add_waiting(count);
}

__device__ inline void wait_for_calls_before() {
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
}

template <int parts, int sharing>
__global__ __launch_bounds__(warps* warp_size) void select_kernel(
    const __grid_constant__ SelectParams p) {
  __shared__ SelectShared<parts> s;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int share = warp % sharing;
  // A score kernel lets this one begin when the calls before it have ended: lengths may be read.
  bool waited = !p.after_scores;
  if (waited) wait_for_calls_before();
  const std::int64_t items = p.window.tokens * p.selection.lists;
  constexpr int cta_items = warps / sharing;
  for (std::int64_t first = std::int64_t{blockIdx.x} * cta_items; first < items;
       first += std::int64_t{gridDim.x} * cta_items) {
    const std::int64_t item = first + warp / sharing;
    if (sharing == 1 && item >= items) return;  // no barrier follows
    const std::int64_t token = item / p.selection.lists, list = item - token * p.selection.lists;
    std::int64_t valid = p.valid_blocks != nullptr
                             ? p.valid_blocks[token]
                             : pages_of(find_row(p.batch, p.window.first_token + token).visible);
    valid = min(max(valid, std::int64_t{0}), p.scores.blocks);
    const int topk = p.selection.topk;
    std::int32_t* const to = p.selection.data + token * p.selection.token + list * p.selection.list;
    if (!waited) wait_for_calls_before();
    waited = true;
    if (valid <= topk) {  // all of them, whatever they score
      if (share != 0) continue;
      for (int i = lane; i < topk; i += warp_size) to[i * p.selection.slot] = i < valid ? i : -1;
      continue;
    }
    const RowOrder order(valid, p.rule);
    TopList<parts> best;
    if (share == 0) best.start(order);
    const int open = topk - static_cast<int>(min(order.forced_count(), std::int64_t{topk}));
    const std::int64_t begin = order.first_free(), end = order.end_free();
    const std::int64_t part = (end - begin + sharing - 1) / sharing;
    if (open > 0) {
      choose(RowScores(p, token, list), order, min(begin + share * part, end),
             min(begin + (share + 1) * part, end), open, s.waiting[warp], best);
    }
    // Neighbours join their lists, then pairs of neighbours.
    for (int step = 1; step < sharing; step *= 2) {
      if (share % (2 * step) == step) best.store(s.lists[warp]);
      __syncthreads();
      if (share % (2 * step) == 0) best.join(s.lists[warp + step]);
    }
    if (share == 0) best.write_ids(topk, to, p.selection.slot);
    if constexpr (sharing > 1) __syncthreads();
  }
}

}  // namespace

void launch_select(const SelectParams& p, const Origin& origin) {
  const std::int64_t items = p.window.tokens * p.selection.lists;
  const bool many = items >= many_items;
  const bool one = list_parts(p.selection.topk) == 1;
  const std::int64_t ctas = many ? (items + warps - 1) / warps : items;
  launch_dependent(origin.op,
                   many ? (one ? select_kernel<1, 1> : select_kernel<2, 1>)
                        : (one ? select_kernel<1, warps> : select_kernel<2, warps>),
                   ctas, warps * warp_size, 0, origin.stream, p);
}

}  // namespace msa::cuda::sm90::index
