// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/common/widen.cuh"
#include "cuda/sm90/prefill/tile.cuh"

/// \file
/// The warps that widen 8-bit pages to f16 on their way into the ring: the products take B from
/// shared memory alone, and both warpgroups use what was widened once.

namespace msa::cuda::sm90::prefill {

template <DType type>
class Widen {
 public:
  /// `warp` of those that widen.
  __device__ Widen(const Params& p, const Cta<type>& cta, int warp)
      : p_(p), cta_(cta), warp_(warp), lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  __device__ void run() {
    for (ptx::Turn turn;; turn.advance()) {
      ptx::wait(cta_.shared.list_full[turn.index], turn.parity);
      const Tile& tile = cta_.shared.tile[turn.index];
      if (tile.rows == 0) return;
      const TileList list = cta_.list(turn.index);
      const std::int32_t seen = tile.visible(p_, tile.seq_len, tile.rows - 1);
      for (int i = 0; i < list.length; ++i) {
        box(page_size);
        // Of V the tile sees so many keys. The rest may hold anything, and 0 · NaN is NaN.
        box(min(seen - list.blocks.id[i] * page_size, page_size));
      }
      ptx::arrive(cta_.shared.tile_free[turn.index]);
    }
  }

 private:
  /// 128 keys by 128 bytes of the raw ring into a slot of 128 keys by 256 bytes; those from `keys`
  /// on become zeros.
  __device__ void box(int keys) {
    ptx::wait(cta_.shared.raw_full[raw_.slot], raw_.parity);
    ptx::wait(cta_.shared.slot_free[place_.slot], place_.parity ^ 1);
    const unsigned char* raw = cta_.raw(raw_);
    unsigned char* slot = cta_.slot(place_);
    // Eight lanes a key, 16 bytes each. What they hold becomes two chunks of a box of 64 elements;
    // the lanes of the second box begin with the other one, or both would meet in the same banks.
    const int chunk = lane_ % 8, second_box = chunk / 4;
    constexpr int keys_at_once = warp_size / 8;
#pragma unroll 4
    for (int key = warp_ * keys_at_once + lane_ / 8; key < page_size;
         key += Team<type>::widen_warps * keys_at_once) {
      const int swizzle = key % 8;
      uint4 bytes = *reinterpret_cast<const uint4*>(raw + key * 128 + (chunk ^ swizzle) * 16);
      if (key >= keys) bytes = {0, 0, 0, 0};
      uint4 half[2];
      widen<type>(bytes.x, half[0].x, half[0].y);
      widen<type>(bytes.y, half[0].z, half[0].w);
      widen<type>(bytes.z, half[1].x, half[1].y);
      widen<type>(bytes.w, half[1].z, half[1].w);
      unsigned char* row = slot + second_box * box_bytes + key * 128;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int part = i ^ second_box;
        *reinterpret_cast<uint4*>(row + ((2 * (chunk % 4) + part) ^ swizzle) * 16) =
            part == 0 ? half[0] : half[1];
      }
    }
    ptx::fence_async_proxy();
    __syncwarp();
    if (lane_ == 0) {
      ptx::arrive(cta_.shared.raw_free[raw_.slot]);
      ptx::arrive(cta_.shared.slot_full[place_.slot]);
    }
    raw_.advance(Ring<type>::raw_slots, 1);
    place_.advance(Ring<type>::slots, 1);
  }

  const Params& p_;
  const Cta<type>& cta_;
  int warp_, lane_;
  ptx::RingPlace raw_, place_;
};

}  // namespace msa::cuda::sm90::prefill
