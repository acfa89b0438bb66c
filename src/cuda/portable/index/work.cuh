// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/requests.cuh"
#include "cuda/portable/index/config.h"
#include "cuda/portable/index/params.h"

/// \file
/// Which pages of which tiles a CTA scores: its slice of all units, found by one warp from the
/// lengths alone, some segments at a time.

namespace msa::cuda::portable::index {

class Slice {
 public:
  /// `bucket_units`: what count_units() has left.
  __device__ Slice(const ScoreParams& p, Work& work, const std::int64_t* bucket_units)
      : p_(p),
        work_(work),
        counts_(bucket_units),
        lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  /// Where the slice begins.
  __device__ void begin() {
    if (few_requests(p_)) {
      const std::int64_t units =
          lane_ < p_.window.requests ? request_rows(p_, lane_).units : std::int64_t{0};
      take_slice(warp_sum(units));
      below_ = first_ = 0;
    } else {
      find_bucket();
    }
    save(0);
  }

  /// The next segments; none where the slice has ended.
  __device__ void find_segments() {
    at_ = work_.at;
    end_ = work_.end;
    below_ = work_.below;
    first_ = work_.first;
    __syncwarp();
    int count = 0;
    while (at_ < end_ && first_ < p_.window.requests && count < segments_ahead) {
      RequestRows mine;
      if (first_ + lane_ < p_.window.requests) mine = request_rows(p_, first_ + lane_);
      const std::int64_t after = below_ + warp_prefix(mine.units);
      const std::int64_t end = __shfl_sync(0xffffffffu, after, warp_size - 1);
      while (at_ < min(end, end_) && count < segments_ahead) {
        const int owner = __popc(__ballot_sync(0xffffffffu, after <= at_));
        RequestRows r;
        r.first_token = __shfl_sync(0xffffffffu, mine.first_token, owner);
        r.rows = __shfl_sync(0xffffffffu, mine.rows, owner);
        r.position = __shfl_sync(0xffffffffu, mine.position, owner);
        r.seq_len = __shfl_sync(0xffffffffu, mine.seq_len, owner);
        r.units = __shfl_sync(0xffffffffu, mine.units, owner);
        const std::int64_t begin = __shfl_sync(0xffffffffu, after, owner) - r.units;
        make_segment(r, static_cast<std::int32_t>(p_.window.first_request + first_ + owner),
                     at_ - begin, count);
      }
      if (at_ < end) break;
      first_ += warp_size;
      below_ = end;
    }
    save(count);
  }

 private:
  __device__ void save(int count) const {
    if (lane_ == 0) {
      work_.at = at_;
      work_.end = end_;
      work_.below = below_;
      work_.first = first_;
      work_.count = count;
    }
    __syncwarp();
  }

  /// Where the slice of `total` units begins and ends.
  __device__ void take_slice(std::int64_t total) {
    const Slices slices(total, static_cast<int>(gridDim.x), p_.by_ctas);
    at_ = slices.begin(static_cast<int>(blockIdx.x));
    end_ = slices.begin(static_cast<int>(blockIdx.x) + 1);
  }

  /// Takes the slice; the first request is that of the bucket that it begins in.
  __device__ void find_bucket() {
    constexpr int each = buckets / warp_size;
    std::int64_t mine[each], sum = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) sum += mine[i] = counts_[lane_ * each + i];
    const std::int64_t after = warp_prefix(sum);
    take_slice(__shfl_sync(0xffffffffu, after, warp_size - 1));
    // Buckets that end at or before the slice's begin.
    std::int64_t below = after - sum, passed_units = 0;
    int passed = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      below += mine[i];
      if (below > at_) continue;
      ++passed;
      passed_units += mine[i];
    }
    below_ = warp_sum(passed_units);
    first_ = warp_sum(passed) * ((p_.window.requests + buckets - 1) / buckets);
  }

  /// The pages from the request's unit `unit` to the end of its tile or of the slice.
  __device__ void make_segment(const RequestRows& r, std::int32_t request, std::int64_t unit,
                               int& count) {
    Segment s;
    s.request = request;
    std::int64_t tile_begin = 0, tile_end = r.units;
    s.first_token = r.first_token;
    s.position = r.position;
    s.rows = static_cast<std::int32_t>(r.rows);
    s.seq_len = r.seq_len;
    if (!p_.window.decode) {
      const TileRun run = tiles_of(p_, r);
      const std::int64_t tile = run.tile_of(unit, tile_count(p_, r.rows));
      const std::int64_t token = tile << p_.tile_tokens_log2;
      tile_begin = run.units(tile);
      tile_end = run.units(tile + 1);
      s.first_token += token;
      s.position += token;
      s.rows =
          static_cast<std::int32_t>(min(r.rows - token, std::int64_t{1} << p_.tile_tokens_log2));
    }
    const std::int64_t begin = unit - tile_begin;
    const std::int64_t end = min(tile_end - tile_begin, begin + (end_ - at_));
    at_ += end - begin;
    // A tile that is not full, or whose metadata contradicts itself, has fewer pages than units.
    const std::int64_t pages = min(pages_of(s.visible(s.rows - 1)), p_.scores.blocks);
    s.page_begin = static_cast<std::int32_t>(min(begin, pages));
    s.page_end = static_cast<std::int32_t>(min(end, pages));
    if (s.page_begin >= s.page_end) return;
    if (lane_ == 0) work_.segment[count] = s;
    ++count;
  }

  const ScoreParams& p_;
  Work& work_;
  const std::int64_t* const counts_;
  const int lane_;
  std::int64_t at_, end_, below_, first_;
};

/// Whole rows, a tile each, where lists are kept: this CTA's share of the call's. The next ones;
/// `work.at` is the next token.
__device__ inline void find_rows(const ScoreParams& p, Work& work) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const std::int64_t token = work.at + lane * static_cast<std::int64_t>(gridDim.x);
  const bool here = lane < segments_ahead && token < p.window.tokens;
  if (here) {
    const RowPlace row = find_row(p.batch, token);
    const std::int64_t pages = pages_of(row.visible);
    Segment s{};
    s.first_token = token;
    s.position = row.visible - 1;
    s.request = static_cast<std::int32_t>(row.request);
    s.rows = 1;
    s.seq_len = static_cast<std::int32_t>(row.seq_len);
    s.page_end = pages > p.skip ? static_cast<std::int32_t>(pages) : 0;
    work.segment[lane] = s;
  }
  const int count = __popc(__ballot_sync(0xffffffffu, here));
  if (lane == 0) {
    work.count = count;
    work.at += count * static_cast<std::int64_t>(gridDim.x);
  }
  __syncwarp();
}

}  // namespace msa::cuda::portable::index
