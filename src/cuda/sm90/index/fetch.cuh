// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/index/cta.cuh"

/// \file
/// The warp that keeps the ring full: each page of the segments, in turn.

namespace msa::cuda::sm90::index {

template <class Keys, int n>
class Fetch {
 public:
  __device__ Fetch(const ScoreParams& p, const Cta<Keys, n>& cta)
      : p_(p), cta_(cta), lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  /// Nothing is read: the copy engine is told which map it will need.
  __device__ void prepare() const {
    if (lane_ == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&p_.keys));
  }

  __device__ void run() {
    for (ptx::Turn turn;; turn.advance()) {
      ptx::wait(cta_.shared.segment_full[turn.index], turn.parity);
      const Segment s = cta_.shared.segment[turn.index];
      ptx::arrive(cta_.shared.segment_free[turn.index]);
      if (s.rows == 0) return;
      std::int32_t pages = page_of(s, s.page_begin + lane_);
      for (std::int32_t first = s.page_begin; first < s.page_end; first += warp_size) {
        const std::int32_t ahead = page_of(s, first + warp_size + lane_);
        const int count = min(warp_size, s.page_end - first);
        for (int i = 0; i < count; ++i) fetch(__shfl_sync(0xffffffffu, pages, i));
        pages = ahead;
      }
    }
  }

 private:
  __device__ std::int32_t page_of(const Segment& s, std::int32_t block) const {
    if (block >= s.page_end) return -1;
    return static_cast<std::int32_t>(find_page(p_.batch, s.request, block, p_.pages));
  }

  /// −1: no page; the slot holds what it held, and nobody looks at its products.
  __device__ void fetch(std::int32_t page) {
    PageRing& pages = cta_.shared.fetched;
    ptx::wait(pages.free[place_.slot], place_.parity ^ 1);
    __syncwarp();
    if (ptx::elect()) {
      std::uint64_t& full = pages.full[place_.slot];
      pages.page[place_.slot] = page;
      if (page < 0) {
        ptx::arrive(full);
      } else {
        ptx::arrive_expecting(full, Cta<Keys, n>::slot_bytes);
#pragma unroll
        for (int box = 0; box < Keys::boxes; ++box) {
          const std::int32_t corner[] = {box * head_dim / Keys::boxes, 0, 0, page};
          ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                            cta_.slot(place_) + box * box_bytes, &p_.keys, corner,
                                            &full);
        }
      }
    }
    __syncwarp();
    place_.advance(p_.slots, 1);
  }

  const ScoreParams& p_;
  const Cta<Keys, n>& cta_;
  const int lane_;
  ptx::RingPlace place_;
};

}  // namespace msa::cuda::sm90::index
