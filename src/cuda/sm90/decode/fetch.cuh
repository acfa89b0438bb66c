// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/write.cuh"

/// \file
/// The warp that makes the lists and keeps the ring full.

namespace msa::cuda::sm90::decode {

/// Hints before the kernel may read anything, by one warp: the maps, and into L2 what the first
/// item's chain of loads will ask for: ids, length, and the beginning of the table row (1,024
/// pages, 128 K tokens), which otherwise waits for the ids.
__device__ inline void prefetch(const Params& p, int index) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const Item item(p, index);
  const auto fetch_line = [](const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
  };
  constexpr int line = 128 / sizeof(std::int32_t);
  if (lane < item.rows) {
    fetch_line(p.selection + (item.first_token + lane) * p.selection_token +
               item.head * p.selection_list);
  }
  if (lane * line < p.batch.table_width) {
    fetch_line(p.batch.table + item.request * p.batch.table_row + lane * line);
  }
  if (lane == 0) {
    fetch_line(p.batch.seq_lens + item.request);
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.k_map));
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.v_map));
  }
}

template <class Cache, int n>
class Fetch {
 public:
  __device__ Fetch(const Params& p, const Cta<n>& cta) : p_(p), cta_(cta) {}

  /// Makes an item's list, then fetches its pages. `parity` is the item's, of those of this CTA.
  __device__ void run(const Item& item, int parity) {
    const std::int32_t seq_len = item.seq_len(p_);
    const int length = build_list(p_, item, seq_len, cta_.list(parity), cta_.scratch);
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    if (lane == 0) {
      cta_.shared.list_length[parity] = length;
      cta_.shared.seq_len[parity] = seq_len;
    }
    __syncwarp();
    ptx::arrive_threads(barriers::ready + parity, threads);
    if (first_) ptx::sync_threads(barriers::ring, 2 * warp_size);
    first_ = false;
    for (int i = cta_.first_page(length); i < cta_.end_page(length); ++i) {
      fetch(item.head, cta_.scratch.sorted[i]);
    }
    if (p_.cluster > 1) expect_results(item, length);
  }

 private:
  static constexpr int boxes = Cache::widens ? 1 : 2;  // of K, and of V

  /// K and V of one page. Where the ring holds a page, both are asked for together, as they lie
  /// side by side: one after the other, as slots became free, the memory was 5 % slower with 8-bit
  /// caches. In a smaller one V's boxes wait for no box of the same page but K's, which are under
  /// way.
  __device__ void fetch(int head, std::int32_t page) {
    const bool together = p_.slots >= 2 * boxes;
    if (together) await_free(2 * boxes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!together) await_free(boxes);
      if (ptx::elect()) {
        ptx::RingPlace place = ring_;
#pragma unroll
        for (int box = 0; box < boxes; ++box) {
          std::uint64_t& full = cta_.shared.slot_full[place.slot];
          ptx::arrive_expecting(full, slot_bytes);
          const std::int32_t corner[] = {box * (head_dim / boxes), 0, head, page};
          ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                            cta_.slot(place), half == 0 ? &p_.k_map : &p_.v_map,
                                            corner, &full);
          place.advance(p_.slots, 1);
        }
      }
      __syncwarp();
      ring_.advance(p_.slots, boxes);
    }
  }

  /// The next `count` slots are free. They become so in turn; that each is waited for lets
  /// synccheck follow their phases.
  __device__ void await_free(int count) const {
    ptx::RingPlace place = ring_;
    for (int i = 0; i < count; ++i) {
      ptx::wait(cta_.shared.slot_free[place.slot], place.parity ^ 1);
      place.advance(p_.slots, 1);
    }
    __syncwarp();
  }

  /// This CTA's barrier learns how many bytes it will receive. Some may have arrived before.
  __device__ void expect_results(const Item& item, int length) const {
    const int columns = own_columns(p_, cta_, item);
    const unsigned sent = sent_partials(cta_, length);
    if (threadIdx.x % warp_size == 0) {
      ptx::arrive_expecting(cta_.shared.received,
                            columns * __popc(sent) * PartialColumn::sent_bytes);
    }
    __syncwarp();
  }

  const Params& p_;
  const Cta<n>& cta_;
  ptx::RingPlace ring_;
  bool first_ = true;  // item of this CTA
};

}  // namespace msa::cuda::sm90::decode
