// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The engine of AVX512-BF16: an instruction adds a pair of A, the same in all lanes, times a row
/// of B to a row of C. As AMX it takes denormal operands as 0 and flushes denormal sums of pairs.

#define MSA_TILE_ENGINE avx512_bf16

#include "cpu/tiles/cache-inl.h"

namespace msa::cpu::tiles::avx512_bf16 {

static void begin() {}
static void end() {}

/// All 16 columns of a tile in a vector.
struct Whole {
  using Sums = __m512;
  using Pairs = __m512bh;

  static MSA_TILE_INLINE Pairs pairs_at(const void* from) {
    return reinterpret_cast<Pairs>(_mm512_loadu_si512(from));
  }
  static MSA_TILE_INLINE Pairs same_pair(std::int32_t pair) {
    return reinterpret_cast<Pairs>(_mm512_set1_epi32(pair));
  }
  static MSA_TILE_INLINE Sums zero() { return _mm512_setzero_ps(); }
  static MSA_TILE_INLINE Sums sums_at(const float* from) { return _mm512_loadu_ps(from); }
  static MSA_TILE_INLINE Sums add(Sums a, Sums b) { return _mm512_add_ps(a, b); }
  static MSA_TILE_INLINE Sums dot(Sums sums, Pairs a, Pairs b) {
    return _mm512_dpbf16_ps(sums, a, b);
  }
  static MSA_TILE_INLINE void store(float* to, Sums sums) { _mm512_storeu_ps(to, sums); }
};

/// The first eight columns: Zen 4 does two of these at the time of a whole one.
struct Half {
  using Sums = __m256;
  using Pairs = __m256bh;

  static MSA_TILE_INLINE Pairs pairs_at(const void* from) {
    return reinterpret_cast<Pairs>(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
  static MSA_TILE_INLINE Pairs same_pair(std::int32_t pair) {
    return reinterpret_cast<Pairs>(_mm256_set1_epi32(pair));
  }
  static MSA_TILE_INLINE Sums zero() { return _mm256_setzero_ps(); }
  static MSA_TILE_INLINE Sums sums_at(const float* from) { return _mm256_loadu_ps(from); }
  static MSA_TILE_INLINE Sums add(Sums a, Sums b) { return _mm256_add_ps(a, b); }
  static MSA_TILE_INLINE Sums dot(Sums sums, Pairs a, Pairs b) {
    return _mm256_dpbf16_ps(sums, a, b);
  }
  static MSA_TILE_INLINE void store(float* to, Sums sums) { _mm256_storeu_ps(to, sums); }
};

MSA_TILE_INLINE std::int32_t pair_at(const void* from) {
  std::int32_t pair;
  __builtin_memcpy(&pair, from, sizeof(pair));
  return pair;
}

/// An operand of products: tiles at `tile`, whose rows are `row` bytes apart, and the next 32
/// elements of the sum `step` bytes behind them.
struct Operand {
  const void* tile;
  std::int64_t row, step;

  MSA_TILE_INLINE const char* at(int s, int r) const {
    return static_cast<const char*>(tile) + s * step + r * row;
  }
};

/// Step `s` of multiply(): 32 elements of the sums.
template <class Columns, int rows, int tiles, bool first>
MSA_TILE_INLINE void multiply_step(int s, const Operand& a, const Operand (&b)[tiles],
                                   float* const (&c)[tiles]) {
  typename Columns::Sums sums[tiles][rows];
  for (int t = 0; t < tiles; ++t) {
    for (int r = 0; r < rows; ++r) sums[t][r] = Columns::zero();
  }
  const char* quad[rows / 4];  // rows 4 i, from which the three behind it are found
  for (int i = 0; i < rows / 4; ++i) {
    quad[i] = a.at(s, 4 * i);
    // As the compiler knows no relation between them, it keeps no address a row: with 16 some of
    // them wait in vector registers, and the loop takes 1.3 times as long.
    asm("" : "+r"(quad[i]));
  }
  const std::int64_t offset[] = {0, a.row, 2 * a.row, 3 * a.row};
  for (int k = 0; k < tile_rows; ++k) {
    typename Columns::Pairs row[tiles];
    for (int t = 0; t < tiles; ++t) row[t] = Columns::pairs_at(b[t].at(s, k));
    for (int r = 0; r < rows; ++r) {
      const auto pair = Columns::same_pair(pair_at(quad[r / 4] + offset[r % 4]));
      for (int t = 0; t < tiles; ++t) sums[t][r] = Columns::dot(sums[t][r], pair, row[t]);
    }
    for (const char*& at : quad) at += 4;
  }
  for (int t = 0; t < tiles; ++t) {
    for (int r = 0; r < rows; ++r) {
      float* const to = c[t] + r * tile_rows;
      if (!first) sums[t][r] = Columns::add(sums[t][r], Columns::sums_at(to));
      Columns::store(to, sums[t][r]);
    }
  }
}

/// `rows` rows of A times the tiles `b` into the tiles `c`, over `steps` · 32 elements. Each step's
/// sums start from 0 and are added to C's, as AMX does it: one chain over all 128 elements of a key
/// has twice its rounding error where an element of q is large.
///
/// The sums in flight, rows · tiles, are 16, which cover an instruction's latency of about six.
/// With two tiles each pair of A is loaded for two instructions.
template <class Columns, int rows, int tiles>
MSA_TILE_INLINE void multiply(int steps, const Operand& a, const Operand (&b)[tiles],
                              float* const (&c)[tiles]) {
  multiply_step<Columns, rows, tiles, true>(0, a, b, c);
  for (int s = 1; s < steps; ++s) multiply_step<Columns, rows, tiles, false>(s, a, b, c);
}

/// Groups of rows whose products with keys are best computed together.
inline constexpr int groups_at_once = 2;

/// S^T of tiles [first, last) of keys, whose rows may be the tiles' own, and of `count` groups, one
/// or two.
static void multiply_keys(const KeyTiles& keys, int first, int last, const KeyProducts* groups,
                          int count) {
  constexpr int tile_bytes = 4 * tile_words, row_bytes = 4 * tile_rows;
  const auto q = [&](int g) { return Operand{groups[g].q, row_bytes, tile_bytes}; };
  for (int t = first; t < last; ++t) {
    const Operand a{keys.data[t], keys.stride[t], 2 * tile_depth};
    float* const s = groups[0].s + t * tile_words;
    if (count == 1) {
      if (groups[0].rows <= tile_rows / 2) {
        multiply<Half, tile_rows, 1>(steps, a, {q(0)}, {s});
      } else {
        multiply<Whole, tile_rows, 1>(steps, a, {q(0)}, {s});
      }
      continue;
    }
    float* const s1 = groups[1].s + t * tile_words;
    constexpr int half = tile_rows / 2;
    const Operand lower{a.at(0, half), a.row, a.step};
    multiply<Whole, half, 2>(steps, a, {q(0), q(1)}, {s, s1});
    multiply<Whole, half, 2>(steps, lower, {q(0), q(1)},
                             {s + half * tile_rows, s1 + half * tile_rows});
  }
}

/// P · V of `key_steps` · 32 keys: the first `rows` rows of `p` [4 steps][16 rows][16] pairs, and
/// `count` columns of packed values, a multiple of 32, into `o` [count / 16][16 rows][16]. More
/// rows may be written.
static void multiply_values(int key_steps, int rows, const std::uint32_t* p, const std::uint32_t* v,
                            int count, float* o) {
  constexpr int tile_bytes = 4 * tile_words, row_bytes = 4 * tile_rows, at_once = 8;
  for (int c = 0; c < count; c += columns, v += column_words, o += 2 * tile_words) {
    const Operand left{v, row_bytes, 2 * tile_bytes};
    const Operand right{v + tile_words, row_bytes, 2 * tile_bytes};
    for (int r = 0; r < rows; r += at_once) {
      float* const to = o + r * tile_rows;
      multiply<Whole, at_once, 2>(key_steps, {p + r * tile_rows, row_bytes, tile_bytes},
                                  {left, right}, {to, to + tile_words});
    }
  }
}

}  // namespace msa::cpu::tiles::avx512_bf16
