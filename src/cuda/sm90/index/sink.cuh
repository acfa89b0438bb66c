// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/top_list.cuh"
#include "cuda/sm90/index/math.cuh"

/// \file
/// What becomes of the maxima on the board: scores in memory, or, where the workspace has no room
/// for scores, lists in shared memory.

namespace msa::cuda::sm90::index {

/// A score from the four warps' maxima at a place of the board.
template <int n>
__device__ inline float score_at(const Shared<n>& s, int page, int place, float factor) {
  const float* maxima = s.board.maxima[page] + place;
  float x = maxima[0];
#pragma unroll
  for (int warp = 1; warp < warpgroup_warps; ++warp) {
    x = larger(x, maxima[warp * n]);
  }
  return score_of(x, factor);
}

template <int n>
class ScoreSink {
 public:
  __device__ ScoreSink(const ScoreParams& p, const Shared<n>& s, const Segment& segment)
      : p_(p),
        s_(s),
        columns_(segment.rows * p.heads),
        to_(p.scores.data + (segment.first_token - p.window.first_token) * p.scores.token) {}

  /// Scores of the blocks [first, end) of the board, by a warpgroup.
  __device__ void take(int warp, int lane, std::int32_t first, std::int32_t end) const {
    constexpr int pages = Board<n>::pages;
    const std::int32_t begin = first / pages * pages;
#pragma unroll
    for (int i = warp * warp_size + lane; i < n * pages; i += warpgroup) {
      const int page = i % pages, place = i / pages;
      const int column = MaximaOrder<n>::column(place);
      const std::int32_t block = begin + page;
      if (block < first || block >= end || column >= columns_) continue;
      const int row = row_of(column, p_.head_factor), head = column - row * p_.heads;
      to_[row * p_.scores.token + head * p_.scores.head + block * p_.scores.block] =
          score_at(s_, page, place, s_.factor[column]);
    }
  }
  __device__ void end() const {}

 private:
  const ScoreParams& p_;
  const Shared<n>& s_;
  const int columns_;
  float* to_;
};

/// Tiles of one row; the lists lie behind the rest of shared memory.
template <int n>
class ListSink {
 public:
  static constexpr int parts = list_parts(max_topk);
  static constexpr std::size_t bytes = n * parts * warp_size * sizeof(BlockKey);

  __device__ ListSink(const ScoreParams& p, Shared<n>& s, const Segment& segment)
      : p_(p),
        s_(s),
        lists_(reinterpret_cast<BlockKey*>(&s + 1)),
        order_(pages_of(segment.visible(0)), p.rule),
        to_(p.selection.data + segment.first_token * p.selection.token) {
    for (int i = static_cast<int>(threadIdx.x); i < n * parts * warp_size; i += warpgroup) {
      lists_[i] = 0;
    }
    ptx::sync_threads(barriers::math, warpgroup);
  }

  /// The blocks [first, end) of the board join the lists, a warp each.
  __device__ void take(int warp, int lane, std::int32_t first, std::int32_t end) const {
    constexpr int pages = Board<n>::pages;
    const std::int32_t block = first / pages * pages + lane;
    const bool here = lane < pages && block >= first && block < end;
    for (int list = warp; list < p_.selection.lists; list += warpgroup_warps) {
      BlockKey key = 0;
      if (here) {
        float score = score_of_head(lane, list);
        for (int head = 1; p_.rule.reduce_heads && head < p_.heads; ++head) {
          score = larger_score(score, score_of_head(lane, head));
        }
        key = order_.key(block, score);
      }
      BlockKey* const kept = lists_ + list * parts * warp_size;
      TopList<parts> best;
      best.load(kept);
      best.add_sorted(sort_lanes(key, true));
      best.store(kept);
    }
  }

  /// A row that sees no more than topk blocks has all of them, and read none.
  __device__ void end() const {
    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    for (int list = warp; list < p_.selection.lists; list += warpgroup_warps) {
      std::int32_t* const to = to_ + list * p_.selection.list;
      if (order_.valid() > p_.selection.topk) {
        TopList<parts> best;
        best.load(lists_ + list * parts * warp_size);
        best.write_ids(p_.selection.topk, to, p_.selection.slot);
      } else {
        write_all_ids(order_.valid(), p_.selection.topk, to, p_.selection.slot);
      }
    }
  }

 private:
  __device__ float score_of_head(int page, int head) const {
    return score_at(s_, page, MaximaOrder<n>::place(head), s_.factor[head]);
  }

  const ScoreParams& p_;
  const Shared<n>& s_;
  BlockKey* lists_;
  const RowOrder order_;
  std::int32_t* to_;
};

}  // namespace msa::cuda::sm90::index
