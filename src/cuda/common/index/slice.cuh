// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/requests.cuh"

/// \file
/// Which pages of which tiles a CTA scores, found by one warp from the lengths alone: its slice of
/// all units, or whole rows where lists are kept. Params is a ScoreCall.

namespace msa::cuda {

template <class Params>
class Slice {
 public:
  __device__ explicit Slice(const Params& p)
      : p_(p), lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  /// `bucket_units`: what count_units() has left, where there are many requests.
  __device__ void begin(const std::int64_t* bucket_units) {
    state = {0, 0, 0, 0};
    if (!few_requests(p_)) find_bucket(bucket_units);
  }

  /// Calls publish(segment) for one segment after another, in order, until the slice has ended or
  /// publish returns false; then the next call goes on from there.
  template <class Publish>
  __device__ void find_segments(Publish publish) {
    const std::int64_t requests = p_.window.requests;
    while (state.first < requests) {
      RequestRows mine;
      if (state.first + lane_ < requests) mine = request_rows(p_, state.first + lane_);
      const std::int64_t after = state.below + warp_prefix(mine.units);
      const std::int64_t end = __shfl_sync(0xffffffffu, after, warp_size - 1);
      // Of few requests these are all.
      if (few_requests(p_) && state.end == 0) take_slice(end);
      while (state.at < min(end, state.end)) {
        const int owner = __popc(__ballot_sync(0xffffffffu, after <= state.at));
        RequestRows r;
        r.first_token = __shfl_sync(0xffffffffu, mine.first_token, owner);
        r.rows = __shfl_sync(0xffffffffu, mine.rows, owner);
        r.position = __shfl_sync(0xffffffffu, mine.position, owner);
        r.seq_len = __shfl_sync(0xffffffffu, mine.seq_len, owner);
        r.units = __shfl_sync(0xffffffffu, mine.units, owner);
        const std::int64_t begin = __shfl_sync(0xffffffffu, after, owner) - r.units;
        Segment s;
        s.request = static_cast<std::int32_t>(p_.window.first_request + state.first + owner);
        if (make_segment(r, state.at - begin, s) && !publish(s)) return;
      }
      if (state.at >= state.end) return;
      state.first += warp_size;
      state.below = end;
    }
  }

  SliceState state;

 private:
  /// Where the slice of `total` units begins and ends.
  __device__ void take_slice(std::int64_t total) {
    const Slices slices(total, static_cast<int>(gridDim.x), p_.by_ctas);
    state.at = slices.begin(static_cast<int>(blockIdx.x));
    state.end = slices.begin(static_cast<int>(blockIdx.x) + 1);
  }

  /// Takes the slice; the first request is that of the bucket that it begins in.
  __device__ void find_bucket(const std::int64_t* bucket_units) {
    constexpr int each = buckets / warp_size;
    std::int64_t mine[each], sum = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) sum += mine[i] = bucket_units[lane_ * each + i];
    const std::int64_t after = warp_prefix(sum);
    take_slice(__shfl_sync(0xffffffffu, after, warp_size - 1));
    // Buckets that end at or before the slice's begin.
    std::int64_t below = after - sum, passed_units = 0;
    int passed = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      below += mine[i];
      if (below > state.at) continue;
      ++passed;
      passed_units += mine[i];
    }
    state.below = warp_sum(passed_units);
    state.first = warp_sum(passed) * ((p_.window.requests + buckets - 1) / buckets);
  }

  /// The pages from the request's unit `unit` to the end of its tile or of the slice; false: there
  /// is none.
  __device__ bool make_segment(const RequestRows& r, std::int64_t unit, Segment& s) {
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
    const std::int64_t end = min(tile_end - tile_begin, begin + (state.end - state.at));
    state.at += end - begin;
    // A tile that is not full, or whose metadata contradicts itself, has fewer pages than units.
    const std::int64_t pages = min(pages_of(s.visible(s.rows - 1)), p_.scores.blocks);
    s.page_begin = static_cast<std::int32_t>(min(begin, pages));
    s.page_end = static_cast<std::int32_t>(min(end, pages));
    return s.page_begin < s.page_end;
  }

  const Params& p_;
  const int lane_;
};

/// A whole row as a tile, where lists are kept; without pages where every block is taken.
template <class Params>
__device__ Segment row_segment(const Params& p, std::int64_t token) {
  const RowPlace row = find_row(p.batch, token);
  const std::int64_t pages = pages_of(row.visible);
  Segment s{};
  s.first_token = token;
  s.position = row.visible - 1;
  s.request = static_cast<std::int32_t>(row.request);
  s.rows = 1;
  s.seq_len = static_cast<std::int32_t>(row.seq_len);
  s.page_end = pages > p.skip ? static_cast<std::int32_t>(pages) : 0;
  return s;
}

}  // namespace msa::cuda
