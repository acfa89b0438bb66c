// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The engine of AMX: C, A and B are tile registers.

#define MSA_TILE_ENGINE amx

#include "cpu/tiles/amx.h"
#include "cpu/tiles/cache-inl.h"

namespace msa::cpu::tiles::amx {

static void begin() { configure_tiles(); }
static void end() { release_tiles(); }

/// Groups of rows whose products with keys are best computed together.
inline constexpr int groups_at_once = 1;

/// S^T of tiles [first, last) of keys, whose rows may be the tiles' own, and of a group.
static void multiply_keys(const KeyTiles& keys, int first, int last, const KeyProducts* groups,
                          int) {
  const auto [q, rows, s] = groups[0];
  load<4>(q, 64);
  load<5>(q + tile_words, 64);
  load<6>(q + 2 * tile_words, 64);
  load<7>(q + 3 * tile_words, 64);
  for (int t = first; t < last; ++t) {
    const char* data = static_cast<const char*>(keys.data[t]);
    zero<0>();
    load<2>(data, keys.stride[t]);
    multiply<0, 2, 4>();
    load<3>(data + 64, keys.stride[t]);
    multiply<0, 3, 5>();
    load<2>(data + 128, keys.stride[t]);
    multiply<0, 2, 6>();
    load<3>(data + 192, keys.stride[t]);
    multiply<0, 3, 7>();
    store<0>(s + t * tile_words, 64);
  }
}

/// P · V of 32 columns and of `key_steps` · 32 keys. Tiles 4 to 7 hold P.
template <int key_steps>
MSA_TILE_INLINE void multiply_values(const std::uint32_t* v, float* o) {
  const auto column = [&](const std::uint32_t* words, float* to) {
    zero<0>();
    load<2>(words, 64);
    multiply<0, 4, 2>();
    if constexpr (key_steps > 1) {
      load<3>(words + 2 * tile_words, 64);
      multiply<0, 5, 3>();
    }
    if constexpr (key_steps > 2) {
      load<2>(words + 4 * tile_words, 64);
      multiply<0, 6, 2>();
    }
    if constexpr (key_steps > 3) {
      load<3>(words + 6 * tile_words, 64);
      multiply<0, 7, 3>();
    }
    store<0>(to, 64);
  };
  column(v, o);
  column(v + tile_words, o + tile_words);
}

/// P · V of `key_steps` · 32 keys: rows of `p` [4 steps][16 rows][16] pairs, all 16 of them, and
/// `count` columns of packed values, a multiple of 32, into `o` [count / 16][16 rows][16].
static void multiply_values(int key_steps, int, const std::uint32_t* p, const std::uint32_t* v,
                            int count, float* o) {
  load<4>(p, 64);
  load<5>(p + tile_words, 64);
  load<6>(p + 2 * tile_words, 64);
  load<7>(p + 3 * tile_words, 64);
  for (int c = 0; c < count; c += columns, v += column_words, o += 2 * tile_words) {
    switch (key_steps) {
      case 1:
        multiply_values<1>(v, o);
        break;
      case 2:
        multiply_values<2>(v, o);
        break;
      case 3:
        multiply_values<3>(v, o);
        break;
      default:
        multiply_values<4>(v, o);
    }
  }
}

}  // namespace msa::cpu::tiles::amx
