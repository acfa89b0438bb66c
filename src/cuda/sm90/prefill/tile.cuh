// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/block_list.cuh"
#include "cuda/common/attend/find_tile.cuh"
#include "cuda/common/ptx/barrier.cuh"
#include "cuda/sm90/prefill/config.h"
#include "cuda/sm90/prefill/params.h"

/// \file
/// A CTA's view of its shared memory, and the warp that finds its tiles and makes their lists.

namespace msa::cuda::sm90::prefill {

template <DType type>
struct Cta {
  __device__ Cta(const Params& p, unsigned char* memory)
      : ring(memory),
        shared(*reinterpret_cast<Shared*>(memory + Ring<type>::bytes)),
        bits(reinterpret_cast<std::uint32_t*>(&shared + 1)),
        capacity(p.capacity) {}

  /// By one warp.
  __device__ void init_barriers() const {
    if (ptx::elect()) {
#pragma unroll
      for (int i = 0; i < Ring<type>::slots; ++i) {
        ::cuda::ptx::mbarrier_init(&shared.slot_full[i],
                                   Ring<type>::widens ? Team<type>::widen_warps : 1);
        ::cuda::ptx::mbarrier_init(&shared.slot_free[i], math_warps);
      }
#pragma unroll
      for (int i = 0; i < Ring<type>::raw_slots; ++i) {
        ::cuda::ptx::mbarrier_init(&shared.raw_full[i], 1);
        ::cuda::ptx::mbarrier_init(&shared.raw_free[i], Team<type>::widen_warps);
      }
      constexpr int users = 1 + Team<type>::widen_warps;  // beside the math warps
#pragma unroll
      for (int i = 0; i < tiles_ahead; ++i) {
        ::cuda::ptx::mbarrier_init(&shared.list_full[i], warp_size);
        ::cuda::ptx::mbarrier_init(&shared.tile_free[i], math_threads + users * warp_size);
      }
      ::cuda::ptx::mbarrier_init(&shared.arrived, 1);
      ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
    }
    __syncwarp();
  }

  __device__ unsigned char* slot(const ptx::RingPlace& place) const {
    return ring + place.slot * slot_bytes;
  }
  /// Of the ring of 8-bit elements.
  __device__ unsigned char* raw(const ptx::RingPlace& place) const {
    return ring + Ring<type>::slots * slot_bytes + place.slot * box_bytes;
  }
  __device__ std::int32_t* array(int i) const {
    return reinterpret_cast<std::int32_t*>(bits + 2 * bitmap_words) + i * capacity;
  }
  /// Arrays 0 and 1 are scratch, then come ids, rows and pages of each list.
  __device__ TileList list(int parity) const {
    const int first = 2 + 3 * parity;
    return {{array(first), array(first + 1)}, array(first + 2), shared.tile[parity].length};
  }
  __device__ ListScratch scratch(int parity) const {
    return {array(0), array(1), list(parity).page, bits, bits + bitmap_words};
  }

  unsigned char* ring;
  Shared& shared;
  std::uint32_t* bits;
  int capacity;
};

/// Into L2, as the math warps wait for them at the tile's start.
__device__ inline void prefetch_queries(const Params& p, const Tile& tile) {
  constexpr int line = 128, lines = head_dim * 2 / line;
  for (int i = static_cast<int>(threadIdx.x) % warp_size; i < tile_rows * lines; i += warp_size) {
    const TileRow row(p, i / lines);
    if (!row.exists(p, tile)) continue;
    const std::uint16_t* q = p.q + row.token(tile) * p.q_token + row.q_head(p, tile) * p.q_head;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(q + i % lines * (line / 2)));
  }
}

static_assert(tiles_ahead == ptx::Turn::places);

/// Finds this CTA's tiles and makes their lists, by one warp.
template <DType type>
__device__ inline void make_lists(const Params& p, const Cta<type>& cta) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  ptx::Turn turn;
  const auto publish = [&](const Tile& tile) {
    if (lane == 0) cta.shared.tile[turn.index] = tile;
    __syncwarp();
    ptx::arrive(cta.shared.list_full[turn.index]);
    turn.advance();
  };
  for (std::int64_t item = blockIdx.x; item < p.items; item += gridDim.x) {
    Tile tile{find_tile(p, item), 0};
    if (tile.rows == 0) continue;
    ptx::wait(cta.shared.tile_free[turn.index], turn.parity ^ 1);
    if (tile.seq_len > 0) {
      tile.length =
          build_list(p, tile, tile.seq_len, cta.list(turn.index).blocks, cta.scratch(turn.index));
    }
    publish(tile);
    prefetch_queries(p, tile);
  }
  ptx::wait(cta.shared.tile_free[turn.index], turn.parity ^ 1);
  publish(Tile{});
}

}  // namespace msa::cuda::sm90::prefill
