// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/widen.cuh"
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
  /// Eight lanes a key, 16 bytes each.
  static constexpr int keys_at_once = warp_size / 8;
  /// From one key of a lane to its next: a multiple of 8, so that all of them are swizzled alike.
  static constexpr int stride = Team<type>::widen_warps * keys_at_once;
  static_assert(stride % 8 == 0);
  static constexpr int steps = (page_size + stride - 1) / stride;
  /// Loads of a lane that are under way together: one by one, each waits for the stores before.
  static constexpr int batch = 3;
  static_assert(steps % batch == 0);

  /// Whether the page has the key `offset` behind a lane's first one; only the last step may not.
  __device__ static bool exists(int first, int offset) {
    return offset + stride <= page_size || first + offset < page_size;
  }

  /// 128 keys by 128 bytes of the raw ring into a slot of 128 keys by 256 bytes; those from `keys`
  /// on become zeros.
  __device__ void box(int keys) {
    ptx::wait(cta_.shared.raw_full[raw_.slot], raw_.parity);
    ptx::wait(cta_.shared.slot_free[place_.slot], place_.parity ^ 1);
    keys < page_size ? convert<true>(keys) : convert<false>(keys);
    ptx::fence_async_proxy();
    __syncwarp();
    if (lane_ == 0) {
      ptx::arrive(cta_.shared.raw_free[raw_.slot]);
      ptx::arrive(cta_.shared.slot_full[place_.slot]);
    }
    raw_.advance(Ring<type>::raw_slots, 1);
    place_.advance(Ring<type>::slots, 1);
  }

  template <bool clears>
  __device__ void convert(int keys) const {
    const int first = warp_ * keys_at_once + lane_ / 8, swizzle = first % 8;
    // What a lane holds becomes two chunks of a box of 64 elements; the lanes of the second box
    // begin with the other one, or both would meet in the same banks.
    const int chunk = lane_ % 8, second_box = chunk / 4, pair = 2 * (chunk % 4);
    const unsigned char* from = cta_.raw(raw_) + first * 128 + (chunk ^ swizzle) * 16;
    unsigned char* to = cta_.slot(place_) + second_box * box_bytes + first * 128;
    unsigned char* const to_half[] = {to + ((pair + second_box) ^ swizzle) * 16,
                                      to + ((pair + 1 - second_box) ^ swizzle) * 16};
#pragma unroll
    for (int step = 0; step < steps; step += batch) {
      uint4 bytes[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int offset = (step + i) * stride;
        if (!exists(first, offset)) continue;
        bytes[i] = *reinterpret_cast<const uint4*>(from + offset * 128);
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int offset = (step + i) * stride;
        if (!exists(first, offset)) continue;
        if (clears && first + offset >= keys) bytes[i] = {0, 0, 0, 0};
        const uint4& x = bytes[i];
        const bool other = second_box != 0;
        widen_chunk(other ? x.z : x.x, other ? x.w : x.y, to_half[0] + offset * 128);
        widen_chunk(other ? x.x : x.z, other ? x.y : x.w, to_half[1] + offset * 128);
      }
    }
  }

  __device__ static void widen_chunk(std::uint32_t first, std::uint32_t second, unsigned char* to) {
    uint4 half;
    widen<type>(first, half.x, half.y);
    widen<type>(second, half.z, half.w);
    *reinterpret_cast<uint4*>(to) = half;
  }

  const Params& p_;
  const Cta<type>& cta_;
  int warp_, lane_;
  ptx::RingPlace raw_, place_;
};

}  // namespace msa::cuda::sm90::prefill
