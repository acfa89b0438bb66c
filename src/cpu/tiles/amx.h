// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/tiles/tile.h"

/// \file
/// AMX tile instructions, written out because GCC 12's intrinsics do not tell the compiler which
/// memory they read: stores before them vanish.

namespace msa::cpu::tiles::amx {

/// Gives all eight tiles their shape.
MSA_TILE_INLINE void configure_tiles() {
  alignas(64) std::uint8_t config[64] = {1};  // palette 1
  for (int t = 0; t < 8; ++t) {
    config[16 + 2 * t] = 64;  // bytes of a row
    config[48 + t] = tile_rows;
  }
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

/// Ends the use of tiles: their 8 KB need not be saved when the thread is switched any more.
MSA_TILE_INLINE void release_tiles() { asm volatile("tilerelease" ::: "memory"); }

template <int tile>
MSA_TILE_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}

/// 16 rows from `from` on, `stride` bytes apart.
template <int tile>
MSA_TILE_INLINE void load(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
}

template <int tile>
MSA_TILE_INLINE void store(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
}

/// C += A · B, products exact, sums f32 to nearest even; denormal operands and sums count as 0.
template <int c, int a, int b>
MSA_TILE_INLINE void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}

}  // namespace msa::cpu::tiles::amx
