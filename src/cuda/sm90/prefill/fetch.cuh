// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/prefill/tile.cuh"

/// \file
/// The warp that keeps the ring full: K and V of each page of the tiles, in turn.

namespace msa::cuda::sm90::prefill {

template <DType type>
class Fetch {
 public:
  __device__ Fetch(const Params& p, const Cta<type>& cta) : p_(p), cta_(cta) {}

  __device__ void run() {
    for (ptx::Turn turn;; turn.advance()) {
      ptx::wait(cta_.shared.list_full[turn.index], turn.parity);
      const Tile& tile = cta_.shared.tile[turn.index];
      if (tile.rows == 0) return;
      const TileList list = cta_.list(turn.index);
      const std::int32_t seen = tile.visible(p_, tile.seq_len, tile.rows - 1);
      for (int i = 0; i < list.length; ++i) {
        if constexpr (Ring<type>::widens) {
          fetch_raw(p_.k_map, tile.head, list.page[i]);
          fetch_raw(p_.v_map, tile.head, list.page[i]);
        } else {
          fetch(p_.k_map, tile.head, list.page[i]);
          fetch_values(tile.head, list.page[i], seen - list.blocks.id[i] * page_size);
        }
      }
      ptx::arrive(cta_.shared.tile_free[turn.index]);
    }
  }

 private:
  __device__ void fetch(const CUtensorMap& map, int head, std::int32_t page) {
    copy(map, head, page, cta_.shared.slot_full[place_.slot]);
    place_.advance(Ring<type>::slots, 1);
  }

  /// V, of which the tile sees `keys` keys. The rest may hold anything, and 0 · NaN is NaN.
  __device__ void fetch_values(int head, std::int32_t page, int keys) {
    if (keys >= page_size) return fetch(p_.v_map, head, page);
    copy(p_.v_map, head, page, cta_.shared.arrived);
    ptx::wait(cta_.shared.arrived, arrived_parity_);
    arrived_parity_ ^= 1;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    for (int i = keys * 8 + lane; i < page_size * 8; i += warp_size) {
      auto* chunk = reinterpret_cast<uint4*>(cta_.slot(place_)) + i;
      chunk[0] = chunk[box_bytes / sizeof(uint4)] = {0, 0, 0, 0};
    }
    ptx::fence_async_proxy();
    __syncwarp();
    if (lane == 0) ptx::arrive(cta_.shared.slot_full[place_.slot]);
    __syncwarp();
    place_.advance(Ring<type>::slots, 1);
  }

  /// Both boxes into the place's slot; `full` counts them.
  __device__ void copy(const CUtensorMap& map, int head, std::int32_t page,
                       std::uint64_t& full) const {
    ptx::wait(cta_.shared.slot_free[place_.slot], place_.parity ^ 1);
    __syncwarp();
    if (ptx::elect()) {
      ptx::arrive_expecting(full, slot_bytes);
      copy_box(map, 0, head, page, cta_.slot(place_), full);
      copy_box(map, head_dim / 2, head, page, cta_.slot(place_) + box_bytes, full);
    }
    __syncwarp();
  }

  /// A page of 8-bit elements is one box.
  __device__ void fetch_raw(const CUtensorMap& map, int head, std::int32_t page) {
    ptx::wait(cta_.shared.raw_free[place_.slot], place_.parity ^ 1);
    __syncwarp();
    if (ptx::elect()) {
      std::uint64_t& full = cta_.shared.raw_full[place_.slot];
      ptx::arrive_expecting(full, box_bytes);
      copy_box(map, 0, head, page, cta_.raw(place_), full);
    }
    __syncwarp();
    place_.advance(Ring<type>::raw_slots, 1);
  }

  __device__ static void copy_box(const CUtensorMap& map, int element, int head, std::int32_t page,
                                  unsigned char* to, std::uint64_t& full) {
    const std::int32_t corner[] = {element, 0, head, page};
    ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, to,
                                      &map, corner, &full);
  }

  const Params& p_;
  const Cta<type>& cta_;
  ptx::RingPlace place_;  // in the ring that this warp fills
  std::uint32_t arrived_parity_ = 0;
};

}  // namespace msa::cuda::sm90::prefill
