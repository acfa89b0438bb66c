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
  std::int64_t valid[warps];  // blocks of a token
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

/// A warp that chooses blocks of a row.
template <int parts>
class Chooser {
 public:
  __device__ Chooser(const RowScores& scores, const RowOrder& order, BlockKey* gathered,
                     TopList<parts>& best)
      : scores_(scores),
        order_(order),
        gathered_(gathered),
        best_(best),
        lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  /// The candidates [begin, end) join the list, of which the last `open` places are not taken by
  /// forced blocks.
  __device__ void add(std::int32_t begin, std::int32_t end, int open) {
    // A few blocks are soon sorted, and of more places than lanes nothing is known.
    if (end - begin <= most_gathered || open > warp_size) return add_all(begin, end);
    // Whole fours, and up to three blocks on both sides of them.
    const std::int32_t inner_begin = (begin + 3) / 4 * 4, inner_end = end / 4 * 4;
    const int before = inner_begin - begin;
    count_ = before + (end - inner_end);
    if (lane_ < count_) {
      gathered_[lane_] = key_of(lane_ < before ? begin + lane_ : inner_end + (lane_ - before));
    }
    float least = -INFINITY;
#pragma unroll 1
    for (std::int32_t first = inner_begin; first < inner_end; first += chunk) {
      float largest = -INFINITY;
      for_each_score(first, inner_end, [&](int, float x) { largest = fmaxf(largest, x); });
      // Of 32 lanes' largest scores, as many as there are places are at least as large as the last
      // of them: smaller scores need no look. −inf and NaN say nothing here.
      least = fmaxf(least, __shfl_sync(0xffffffffu, sort_lanes(largest, true), open - 1));
      std::uint32_t enter = 0;  // bit i: score i of this lane
      for_each_score(first, inner_end, [&](int i, float x) { enter |= x >= least ? 1u << i : 0; });
      if (least == -INFINITY || !gather(first, enter)) {
        add_all(first, min(first + chunk, inner_end));
      }
    }
    add_gathered();
  }

 private:
  /// use(i, x) for each score of a lane in a chunk, whose blocks end at `end`, a multiple of 4.
  template <class Use>
  __device__ void for_each_score(std::int32_t first, std::int32_t end, Use use) const {
    if (scores_.together()) {
#pragma unroll
      for (int i = 0; i < chunk_each; i += 4) {
        const std::int32_t block = block_of(first, i);
        if (block >= end) continue;
        const float4 x = scores_.four(block);
        use(i, x.x), use(i + 1, x.y), use(i + 2, x.z), use(i + 3, x.w);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < chunk_each && block_of(first, i) < end; ++i) {
        use(i, scores_[block_of(first, i)]);
      }
    }
  }

  /// Block of a lane's score i of a chunk.
  __device__ std::int32_t block_of(std::int32_t first, int i) const {
    return first + i / 4 * (4 * warp_size) + 4 * lane_ + i % 4;
  }
  __device__ BlockKey key_of(std::int32_t block) const { return order_.key(block, scores_[block]); }

  __device__ void add_all(std::int32_t begin, std::int32_t end) {
#pragma unroll 1
    for (std::int32_t first = begin; first < end; first += warp_size) {
      const std::int32_t block = first + lane_;
      best_.add_sorted(sort_lanes(block < end ? key_of(block) : 0, true));
    }
  }

  /// Gathers the scores of a chunk that the bits name; false where there are too many of them.
  __device__ bool gather(std::int32_t first, std::uint32_t enter) {
    const int mine = __popc(enter), after = warp_prefix(mine);
    const int total = __shfl_sync(0xffffffffu, after, warp_size - 1);
    if (total > most_gathered) return false;
    if (count_ + total > most_gathered) add_gathered();
    int place = count_ + after - mine;
#pragma unroll 1
    for (; enter != 0; enter &= enter - 1) {
      gathered_[place++] = key_of(block_of(first, __ffs(static_cast<int>(enter)) - 1));
    }
    count_ += total;
    return true;
  }

  __device__ void add_gathered() {
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < count_; i += warp_size) {
      best_.add_sorted(sort_lanes(i + lane_ < count_ ? gathered_[i + lane_] : 0, true));
    }
    __syncwarp();
    count_ = 0;
  }

  const RowScores& scores_;
  const RowOrder& order_;
  BlockKey* const gathered_;
  TopList<parts>& best_;
  const int lane_;
  int count_ = 0;  // of gathered_
};

/// Blocks that token `token` of the window sees.
__device__ inline std::int64_t valid_blocks(const SelectParams& p, std::int64_t token) {
  const std::int64_t valid =
      p.valid_blocks != nullptr ? p.valid_blocks[token]
                                : pages_of(find_row(p.batch, p.window.first_token + token).visible);
  return min(max(valid, std::int64_t{0}), p.scores.blocks);
}

/// After that the call behind may set itself up.
__device__ inline void wait_for_calls_before() {
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
}

template <int parts, int sharing>
__global__ __launch_bounds__(warps* warp_size) void select_kernel(
    const __grid_constant__ SelectParams p) {
  __shared__ SelectShared<parts> s;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int share = warp % sharing;
  // A score kernel lets this one begin when the calls before it have ended: lengths may be read.
  bool waited = !p.after_scores;
  if (waited) wait_for_calls_before();
  constexpr int cta_tokens = warps / sharing;
  // CTA by CTA the lists of some tokens; no 64-bit number is divided.
  const auto lists = static_cast<unsigned>(p.selection.lists);
  std::int64_t group = blockIdx.x / lists;
  unsigned list = blockIdx.x % lists;
  const auto advance = [&] {
    group += gridDim.x / lists;
    list += gridDim.x % lists;
    if (list >= lists) list -= lists, ++group;
  };
  for (; group * cta_tokens < p.window.tokens; advance()) {
    const std::int64_t first = group * cta_tokens, token = first + warp / sharing;
    if (threadIdx.x < cta_tokens && first + threadIdx.x < p.window.tokens) {
      s.valid[threadIdx.x] = valid_blocks(p, first + threadIdx.x);
    }
    __syncthreads();
    const std::int64_t valid = s.valid[warp / sharing];
    __syncthreads();  // it may be written again, and so may the lists of the item before
    if (!waited) wait_for_calls_before();
    waited = true;
    if (token >= p.window.tokens) continue;
    const int topk = p.selection.topk;
    std::int32_t* const to = p.selection.data + token * p.selection.token + list * p.selection.list;
    if (valid <= topk) {  // all of them, whatever they score
      if (share != 0) continue;
      write_all_ids(valid, topk, to, p.selection.slot);
      continue;
    }
    const RowOrder order(valid, p.rule);
    TopList<parts> best;
    if (share == 0) best.start(order);
    const int open = topk - static_cast<int>(min(order.forced_count(), std::int64_t{topk}));
    const auto begin = static_cast<std::int32_t>(order.first_free());
    const auto end = static_cast<std::int32_t>(order.end_free());
    const std::int32_t part = (end - begin + 4 * sharing - 1) / (4 * sharing) * 4;
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
  }
}

}  // namespace

void launch_select(const SelectParams& p, const Origin& origin) {
  const std::int64_t tokens = p.window.tokens, lists = p.selection.lists;
  const bool many = tokens * lists >= many_items;
  const bool one = list_parts(p.selection.topk) == 1;
  launch_dependent(origin.op,
                   many ? (one ? select_kernel<1, 1> : select_kernel<2, 1>)
                        : (one ? select_kernel<1, warps> : select_kernel<2, warps>),
                   (many ? (tokens + warps - 1) / warps : tokens) * lists, warps * warp_size, 0,
                   origin.stream, p);
}

}  // namespace msa::cuda::sm90::index
