// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/requests.cuh"
#include "cuda/sm90/index/cta.cuh"

/// \file
/// Which pages of which tiles a CTA scores: its slice of all units, found from the lengths alone.

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
class Rows {
 public:
  __device__ Rows(const ScoreParams& p, const Cta<Keys, n>& cta) : p_(p), segments_(cta) {}

  __device__ void run() {
    for (std::int64_t token = blockIdx.x; token < p_.window.tokens; token += gridDim.x) {
      const RowPlace row = find_row(p_.batch, token);
      const std::int64_t pages = pages_of(row.visible);
      Segment s{};
      s.first_token = token;
      s.position = row.visible - 1;
      s.request = static_cast<std::int32_t>(row.request);
      s.rows = 1;
      s.seq_len = static_cast<std::int32_t>(row.seq_len);
      s.page_end = pages > p_.skip ? static_cast<std::int32_t>(pages) : 0;
      segments_.publish(s);
    }
    segments_.publish(Segment{});
  }

 private:
  const ScoreParams& p_;
  Segments<Keys, n> segments_;
};

/// The pages of this CTA's slice.
template <class Keys, int n>
class Slice {
 public:
  __device__ Slice(const ScoreParams& p, const Cta<Keys, n>& cta)
      : p_(p), cta_(cta), segments_(cta), lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  __device__ void run() {
    const std::int64_t requests = p_.window.requests;
    std::int64_t first = few_requests(p_) ? 0 : find_bucket(requests);
    do {
      RequestRows mine;
      if (first + lane_ < requests) mine = request_rows(p_, first + lane_);
      const std::int64_t after = below_ + warp_prefix(mine.units);
      below_ = __shfl_sync(0xffffffffu, after, warp_size - 1);
      if (few_requests(p_)) take_slice(below_);
      while (at_ < min(below_, end_)) {
        const int owner = __popc(__ballot_sync(0xffffffffu, after <= at_));
        const std::int64_t index = first + owner;
        RequestRows r;
        r.first_token = __shfl_sync(0xffffffffu, mine.first_token, owner);
        r.rows = __shfl_sync(0xffffffffu, mine.rows, owner);
        r.position = __shfl_sync(0xffffffffu, mine.position, owner);
        r.seq_len = __shfl_sync(0xffffffffu, mine.seq_len, owner);
        r.units = __shfl_sync(0xffffffffu, mine.units, owner);
        const std::int64_t begin = __shfl_sync(0xffffffffu, after, owner) - r.units;
        make_segment(r, static_cast<std::int32_t>(p_.window.first_request + index), at_ - begin);
      }
      first += warp_size;
    } while (at_ < end_ && first < requests);
    segments_.publish(Segment{});
  }

 private:
  /// Where the slice of `total` units begins and ends.
  __device__ void take_slice(std::int64_t total) {
    const Slices slices(total, static_cast<int>(gridDim.x), p_.by_ctas);
    at_ = slices.begin(static_cast<int>(blockIdx.x));
    end_ = slices.begin(static_cast<int>(blockIdx.x) + 1);
  }

  /// Takes the slice; returns the first request of the bucket that it begins in.
  __device__ std::int64_t find_bucket(std::int64_t requests) {
    const std::int64_t* counts = cta_.shared.bucket_units;
    constexpr int each = buckets / warp_size;
    std::int64_t mine[each], sum = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) sum += mine[i] = counts[lane_ * each + i];
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
    const std::int64_t size = (requests + buckets - 1) / buckets;
    return warp_sum(passed) * size;
  }

  /// The pages from the request's unit `unit` to the end of its tile or of the slice.
  __device__ void make_segment(const RequestRows& r, std::int32_t request, std::int64_t unit) {
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
    if (s.page_begin < s.page_end) segments_.publish(s);
  }

  const ScoreParams& p_;
  const Cta<Keys, n>& cta_;
  Segments<Keys, n> segments_;
  const int lane_;
  std::int64_t at_ = 0, end_ = 0;  // of the slice
  std::int64_t below_ = 0;         // units of the requests before those at hand
};

}  // namespace msa::cuda::sm90::index
