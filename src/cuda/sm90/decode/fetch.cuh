// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/decode/cta.cuh"

/// \file
/// The warp that makes the lists and keeps the ring full.

namespace msa::cuda::sm90::decode {

/// Hints before the kernel may read anything: the maps, and into L2 the lengths and the beginning
/// of the table row that the first item looks its pages up in (1,024 pages, 128 K tokens), which
/// otherwise waits for the ids.
__device__ inline void prefetch(const Params& p, int index) {
  const int thread = static_cast<int>(threadIdx.x) - math_threads;
  const Item item(p, index);
  const auto fetch_line = [](const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
  };
  constexpr int line = 128 / sizeof(std::int32_t);
  if (thread < warp_size) {
    if (thread * line < p.batch.table_width) {
      fetch_line(p.batch.table + item.request * p.batch.table_row + thread * line);
    }
  } else if (thread == warp_size) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.k));
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.v));
  } else if (thread == warp_size + 1) {
    fetch_line(p.batch.seq_lens + item.request);
  }
}

template <class Cache, int n>
class Fetch {
 public:
  __device__ Fetch(const Params& p, const Cta<n>& cta) : p_(p), cta_(cta) {}

  __device__ void run(int index) {
    const Item item(p_, index);
    Shared<n>& s = cta_.shared;
    ptx::wait(s.list_free[list_.slot], list_.parity ^ 1);
    const int length = build_list(p_, item, cta_.list(list_), cta_.scratch);
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    if (lane == 0) {
      s.list_count[list_.slot] = length;
      ptx::arrive(s.list_full[list_.slot]);
    }
    for (int i = cta_.first_page(length); i < cta_.end_page(length); ++i) {
      half(p_.k, lane, item.head, cta_.scratch.sorted[i]);
      half(p_.v, lane, item.head, cta_.scratch.sorted[i]);
    }
    __syncwarp();
    list_.advance(lists, 1);
  }

 private:
  static constexpr int boxes = Cache::widens ? 1 : 2;  // of K, and of V

  /// K or V of one page, one lane a box. V's boxes wait for no box of the same page but K's, which
  /// are under way: the smallest ring has three slots.
  __device__ void half(const CUtensorMap& map, int lane, int head, std::int32_t page) {
    if (lane < boxes) {
      ptx::RingPlace place = ring_;
      place.advance(p_.slots, lane);
      Shared<n>& s = cta_.shared;
      ptx::wait(s.slot_free[place.slot], place.parity ^ 1);
      ptx::arrive_expecting(s.slot_full[place.slot], slot_bytes);
      const std::int32_t corner[] = {lane * (head_dim / boxes), 0, head, page};
      ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                        cta_.slot(place), &map, corner, &s.slot_full[place.slot]);
    }
    __syncwarp();
    ring_.advance(p_.slots, boxes);
  }

  const Params& p_;
  const Cta<n>& cta_;
  ptx::RingPlace ring_;
  ptx::RingPlace list_;
};

}  // namespace msa::cuda::sm90::decode
