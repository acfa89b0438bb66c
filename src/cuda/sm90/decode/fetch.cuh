// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/decode/cta.cuh"

/// \file
/// The warp that makes the lists and keeps the ring full.

namespace msa::cuda::sm90::decode {

template <class Cache, int n>
class Fetch {
 public:
  __device__ Fetch(const Params& p, const Cta<n>& cta) : p_(p), cta_(cta) {}

  __device__ void item(std::int64_t index) {
    const Item item(p_, index);
    Shared<n>& s = cta_.shared;
    ptx::wait(s.list_free[list_.slot], list_.parity ^ 1);
    const int length =
        build_list(p_, item, length_of(p_, item), cta_.list(list_), cta_.scratch);
    if (threadIdx.x % warp_size == 0) {
      s.list_count[list_.slot] = length;
      ptx::arrive(s.list_full[list_.slot]);
      for (int i = cta_.first_page(length); i < cta_.end_page(length); ++i) {
        half(p_.k, item.head, cta_.scratch.sorted[i]);
        half(p_.v, item.head, cta_.scratch.sorted[i]);
      }
    }
    __syncwarp();
    list_.advance(lists);
  }

 private:
  /// K or V of one page.
  __device__ void half(const CUtensorMap& map, int head, std::int32_t page) {
    constexpr int boxes = Cache::widens ? 1 : 2;
    Shared<n>& s = cta_.shared;
    for (int box = 0; box < boxes; ++box) {
      ptx::wait(s.slot_free[ring_.slot], ring_.parity ^ 1);
      ptx::arrive_expecting(s.slot_full[ring_.slot], slot_bytes);
      const std::int32_t place[] = {box * head_dim / boxes, 0, head, page};
      ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                        cta_.slot(ring_), &map, place, &s.slot_full[ring_.slot]);
      ring_.advance(p_.slots);
    }
  }

  const Params& p_;
  const Cta<n>& cta_;
  ptx::RingPlace ring_;
  ptx::RingPlace list_;
};

}  // namespace msa::cuda::sm90::decode
