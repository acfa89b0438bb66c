// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/widen.cuh"
#include "cuda/sm90/index/cta.cuh"

/// \file
/// The warps that widen e4m3 pages to f16 for two warpgroups: along wgmma's n keys are taken from
/// shared memory alone, and both warpgroups use what was widened once.

namespace msa::cuda::sm90::index {

template <class Keys, int n>
class Widen {
 public:
  /// `warp` of those that widen.
  __device__ Widen(const ScoreParams& p, const Cta<Keys, n>& cta, int warp)
      : p_(p),
        cta_(cta),
        s_(cta.shared),
        warp_(warp),
        lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  __device__ void run() {
    for (ptx::Turn turn;; turn.advance()) {
      ptx::wait(s_.segment_full[turn.index], turn.parity);
      const Segment& segment = s_.segment[turn.index];
      const int rows = segment.rows, pages = segment.page_end - segment.page_begin;
      ptx::arrive(s_.segment_free[turn.index]);
      if (rows == 0) return;
      for (int i = 0; i < pages; ++i) page();
    }
  }

 private:
  static constexpr int keys_at_once = widening_warps * warp_size;
  static_assert(keys_at_once % 8 == 0, "all keys of a lane are swizzled alike");

  /// The next page of the ring, whose slot holds nothing of use where the block's cell names none.
  __device__ void page() {
    ptx::wait(s_.fetched.full[from_.slot], from_.parity);
    ptx::wait(s_.widened.free[to_.slot], to_.parity ^ 1);
    __syncwarp();
#pragma unroll 1
    for (int key = warp_ * warp_size + lane_; key < page_size; key += keys_at_once) {
#pragma unroll
      for (int half = 0; half < 2; ++half) convert(key, half);
    }
    ptx::fence_async_proxy();
    __syncwarp();
    if (lane_ == 0) {
      if (warp_ == 0) s_.widened.page[to_.slot] = s_.fetched.page[from_.slot];
      ptx::arrive(s_.widened.full[to_.slot]);
      ptx::arrive(s_.fetched.free[from_.slot]);
    }
    __syncwarp();
    from_.advance(p_.slots, 1);
    to_.advance(widened_slots, 1);
  }

  /// Half of a key's elements, in the order of d that Queries::store_f16() follows: elements
  /// 2 c + 8 j + e of k step 4 half + s are those of chunk 2 c + half, from 4 s + 2 j on. So four
  /// chunks give whole ones.
  __device__ void convert(int key, int half) const {
    const int swizzle = key % 8;
    const unsigned char* from = cta_.slot(from_) + key * 128;
    unsigned char* to = cta_.widened_slot(to_) + half * box_bytes + key * 128;
    uint4 chunks[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      chunks[c] = *reinterpret_cast<const uint4*>(from + ((2 * c + half) ^ swizzle) * 16);
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      std::uint32_t words[2][4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const std::uint32_t four[] = {chunks[c].x, chunks[c].y, chunks[c].z, chunks[c].w};
        widen<DType::e4m3>(four[s], words[0][c], words[1][c]);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        *reinterpret_cast<uint4*>(to + ((2 * s + j) ^ swizzle) * 16) = {words[j][0], words[j][1],
                                                                        words[j][2], words[j][3]};
      }
    }
  }

  const ScoreParams& p_;
  const Cta<Keys, n>& cta_;
  Shared<n>& s_;
  const int warp_, lane_;
  ptx::RingPlace from_, to_;
};

}  // namespace msa::cuda::sm90::index
