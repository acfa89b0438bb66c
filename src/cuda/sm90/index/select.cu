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

/// Scores that a warp looks at together, twice, and those of a lane: one bit each.
constexpr int chunk = 1024, chunk_each = chunk / warp_size;
/// Candidates that are sorted together where there are no more.
constexpr int most_gathered = 2 * warp_size;

template <int parts>
struct SelectShared {
  BlockKey gathered[warps][most_gathered];
  BlockKey lists[warps][parts * warp_size];
};

/// The scores of a row that decide on one list.
class RowScores {
 public:
  __device__ RowScores(const SelectParams& p, std::int64_t token, std::int64_t list)
      : from_(p.scores.data + token * p.scores.token +
              (p.rule.reduce_heads ? 0 : list * p.scores.head)),
        block_(p.scores.block),
        head_(p.scores.head),
        heads_(p.rule.reduce_heads ? p.heads : 1),
        together_(heads_ == 1 && block_ == 1 &&
                  reinterpret_cast<std::uintptr_t>(from_) % sizeof(float4) == 0) {}

  __device__ float operator[](std::int32_t block) const {
    const float* at = from_ + block * block_;
    float score = *at;
    for (int head = 1; head < heads_; ++head) score = larger_score(score, at[head * head_]);
    return score;
  }

  /// Whether the scores of blocks 4 i to 4 i + 3 may be loaded together.
  __device__ bool together() const { return together_; }
  __device__ float4 four(std::int32_t block) const {
    return *reinterpret_cast<const float4*>(from_ + block);
  }

 private:
  const float* from_;
  std::int64_t block_, head_;
  int heads_;
  bool together_;
};

/// What a warp needs to choose blocks of a row.
template <int parts>
class Chooser {
 public:
  __device__ Chooser(const RowScores& scores, const RowOrder& order, BlockKey* gathered_keys,
                     TopList<parts>& best)
      : scores_(scores),
        order_(order),
        gathered_(gathered_keys),
        best_(best),
        lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  /// The candidates [begin, end) join the list, of which the last `open` places are not taken by
  /// forced blocks.
  __device__ void add(std::int32_t begin, std::int32_t end, int open) {
    // A few blocks are soon sorted.
    const bool filters = open <= warp_size && end - begin > most_gathered;
    float least = -INFINITY;
#pragma unroll 1
    for (std::int32_t first = begin / 4 * 4; first < end; first += chunk) {
      const std::int32_t from = max(first, begin);
      int count = filters ? gather(first, begin, end, open, least) : all;
      const bool gathered = count != all;
      if (!gathered) count = min(first + chunk, end) - from;
#pragma unroll 1
      for (int i = 0; i < count; i += warp_size) {
        const int own = i + lane_;
        const BlockKey key = own >= count ? 0 : gathered ? gathered_[own] : key_of(from + own);
        best_.add_sorted(sort_lanes(key, true));
      }
      __syncwarp();
    }
  }

 private:
  /// use(i, x) for each score of a lane in a chunk.
  template <class Use>
  __device__ void for_each_score(std::int32_t first, std::int32_t begin, std::int32_t end,
                                 Use use) const {
    const auto use_four = [&](int i, const float4& x) {
      use(i, x.x), use(i + 1, x.y), use(i + 2, x.z), use(i + 3, x.w);
    };
    if (scores_.together() && first >= begin && first + chunk <= end) {
#pragma unroll
      for (int i = 0; i < chunk_each; i += 4) use_four(i, scores_.four(block_of(first, i)));
      return;
    }
#pragma unroll 1
    for (int i = 0; i < chunk_each && first + i * warp_size < end; i += 4) {
      const std::int32_t block = block_of(first, i);
      if (scores_.together() && block >= begin && block + 4 <= end) {
        use_four(i, scores_.four(block));
        continue;
      }
      for (int j = 0; j < 4; ++j) {
        if (block + j >= begin && block + j < end) use(i + j, scores_[block + j]);
      }
    }
  }

  /// Block of a lane's i-th score of a chunk.
  __device__ std::int32_t block_of(std::int32_t first, int i) const {
    return first + i / 4 * (4 * warp_size) + 4 * lane_ + i % 4;
  }
  __device__ BlockKey key_of(std::int32_t block) const { return order_.key(block, scores_[block]); }

  /// Gathers the candidates of a chunk that may still enter; returns their number, or `all` where
  /// that is no help. `least`: of the chunks before, a score that enough candidates reach.
  __device__ int gather(std::int32_t first, std::int32_t begin, std::int32_t end, int open,
                        float& least) {
    float largest = -INFINITY;
    for_each_score(first, begin, end, [&](int, float x) { largest = fmaxf(largest, x); });
    // Of 32 lanes' largest scores, as many as there are places are at least as large as the last of
    // them: smaller scores need no look. −inf and NaN say nothing here.
    least = fmaxf(least, __shfl_sync(0xffffffffu, sort_lanes(largest, true), open - 1));
    if (least == -INFINITY) return all;
    unsigned enter = 0;  // bit i: score i of this lane
    for_each_score(first, begin, end, [&](int i, float x) { enter |= x >= least ? 1u << i : 0; });
    int after = __popc(enter);
#pragma unroll
    for (int step = 1; step < warp_size; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, after, step);
      if (lane_ >= step) after += before;
    }
    const int count = __shfl_sync(0xffffffffu, after, warp_size - 1);
    if (count > most_gathered) return all;  // many alike
#pragma unroll 1
    for (int place = after - __popc(enter); enter != 0; ++place) {
      gathered_[place] = key_of(block_of(first, __ffs(enter) - 1));
      enter &= enter - 1;
    }
    __syncwarp();
    return count;
  }

  static constexpr int all = -1;

  const RowScores& scores_;
  const RowOrder& order_;
  BlockKey* const gathered_;
  TopList<parts>& best_;
  const int lane_;
};

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
    const auto begin = static_cast<std::int32_t>(order.first_free());
    const auto end = static_cast<std::int32_t>(order.end_free());
    const std::int32_t part = (end - begin + sharing - 1) / sharing;
    if (open > 0) {
      const RowScores scores(p, token, list);
      Chooser<parts>(scores, order, s.gathered[warp], best)
          .add(min(begin + share * part, end), min(begin + (share + 1) * part, end), open);
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
