// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/top_list.cuh"
#include "cuda/portable/index/math.cuh"

/// \file
/// What becomes of the maxima on the board: scores in memory, or, where the workspace has no room
/// for scores, lists in shared memory.

namespace msa::cuda::portable::index {

/// Scores of the blocks [first, end) of the board, by all threads, or, where no other warp shares
/// its columns, by each warp its own.
template <class Keys, int n>
__device__ void write_scores(const ScoreParams& p, const Segment& s, const Math<Keys, n>& math,
                             std::int32_t first, std::int32_t end) {
  using Sizes = Team<Keys, n>;
  constexpr int pages = Board<Keys, n>::pages;
  constexpr bool alone = Sizes::key_warps == 1;
  constexpr int threads = alone ? warp_size : Sizes::threads;
  const int first_column = alone ? static_cast<int>(threadIdx.x) / warp_size * Sizes::columns : 0;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const int columns = min(s.rows * p.heads - first_column, alone ? Sizes::columns : n);
  const int page = thread % pages;
  const std::int32_t block = first / pages * pages + page;
  if (block < first || block >= end) return;
  float* const to = p.scores.data + (s.first_token - p.window.first_token) * p.scores.token +
                    block * p.scores.block;
#pragma unroll 1
  for (int i = thread / pages; i < columns; i += threads / pages) {
    const int column = first_column + i;
    const int row = row_of(column, p.head_factor), head = column - row * p.heads;
    to[row * p.scores.token + head * p.scores.head] = math.score_at(page, column);
  }
}

/// The lists of one row, of all warps of the CTA.
template <class Keys, int n>
class Lists {
  static constexpr int parts = list_parts(max_topk);
  static constexpr int entries = parts * warp_size;
  static constexpr int pages = Board<Keys, n>::pages;

 public:
  __device__ Lists(const ScoreParams& p, const Segment& s, BlockKey* memory)
      : p_(p),
        lists_(memory),
        order_(pages_of(s.visible(0)), p.rule),
        to_(p.selection.data + s.first_token * p.selection.token),
        warp_(static_cast<int>(threadIdx.x) / warp_size) {
    for (int list = warp_; list < p_.selection.lists; list += warps)
      TopList<parts>().store(at(list));
    __syncwarp();
  }

  /// The blocks [first, end) of the board join the lists, a warp each.
  __device__ void take(const Math<Keys, n>& math, std::int32_t first, std::int32_t end) const {
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const std::int32_t block = first / pages * pages + lane;
    const bool here = lane < pages && block >= first && block < end;
#pragma unroll 1
    for (int list = warp_; list < p_.selection.lists; list += warps) {
      BlockKey key = 0;
      if (here) {
        float score = math.score_at(lane, list);
        for (int head = 1; p_.rule.reduce_heads && head < p_.heads; ++head) {
          score = larger_score(score, math.score_at(lane, head));
        }
        key = order_.key(block, score);
      }
      TopList<parts> best;
      best.load(at(list));
      best.add_sorted(sort_lanes(key, true));
      best.store(at(list));
      __syncwarp();
    }
  }

  /// A row that sees no more than topk blocks has all of them, and read none.
  __device__ void write() const {
#pragma unroll 1
    for (int list = warp_; list < p_.selection.lists; list += warps) {
      std::int32_t* const to = to_ + list * p_.selection.list;
      if (order_.valid() > p_.selection.topk) {
        TopList<parts> best;
        best.load(at(list));
        best.write_ids(p_.selection.topk, to, p_.selection.slot);
      } else {
        write_all_ids(order_.valid(), p_.selection.topk, to, p_.selection.slot);
      }
    }
  }

 private:
  static constexpr int warps = Team<Keys, n>::warps;

  __device__ BlockKey* at(int list) const { return lists_ + list * entries; }

  const ScoreParams& p_;
  BlockKey* const lists_;
  const RowOrder order_;
  std::int32_t* const to_;
  const int warp_;
};

}  // namespace msa::cuda::portable::index
