// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Transposition of a tile of words. Compiled once for each engine, MSA_TILE_ENGINE.

#ifndef MSA_TILE_ENGINE
#error "an engine's products come first: amx_products.h or avx512_bf16_products.h"
#endif

#include <immintrin.h>

#include <cstdint>

#include "cpu/tiles/tile.h"

namespace msa::cpu::tiles::MSA_TILE_ENGINE {

/// 16 × 16 words, rows `from_stride` and `to_stride` words apart.
MSA_TILE_INLINE void transpose(const std::uint32_t* from, std::int64_t from_stride,
                               std::uint32_t* to, std::int64_t to_stride) {
  const auto part = [&](int row, int column) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + row * from_stride + column));
  };
  for (int c = 0; c < 16; c += 4) {
    __m512i v[4];  // 128-bit lane b of v[i]: four columns of row 4 b + i
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm512_castsi128_si512(part(i, c));
      v[i] = _mm512_inserti32x4(v[i], part(4 + i, c), 1);
      v[i] = _mm512_inserti32x4(v[i], part(8 + i, c), 2);
      v[i] = _mm512_inserti32x4(v[i], part(12 + i, c), 3);
    }
    const __m512i low01 = _mm512_unpacklo_epi32(v[0], v[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(v[2], v[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(v[2], v[3]);
    std::uint32_t* out = to + c * to_stride;
    _mm512_storeu_si512(out, _mm512_unpacklo_epi64(low01, low23));
    _mm512_storeu_si512(out + to_stride, _mm512_unpackhi_epi64(low01, low23));
    _mm512_storeu_si512(out + 2 * to_stride, _mm512_unpacklo_epi64(high01, high23));
    _mm512_storeu_si512(out + 3 * to_stride, _mm512_unpackhi_epi64(high01, high23));
  }
}

/// The same of 16 rows in registers: stored and read again in parts, rows just computed take three
/// times as long.
MSA_TILE_INLINE void transpose(const __m512i (&rows)[16], std::uint32_t* to,
                               std::int64_t to_stride) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // b[i + c]: columns c, 4 + c, … of rows i to i + 3
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88);  // columns c, 8 + c
    const __m512i high = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
    _mm512_storeu_si512(to + c * to_stride, _mm512_shuffle_i32x4(low, low2, 0x88));
    _mm512_storeu_si512(to + (8 + c) * to_stride, _mm512_shuffle_i32x4(low, low2, 0xdd));
    _mm512_storeu_si512(to + (4 + c) * to_stride, _mm512_shuffle_i32x4(high, high2, 0x88));
    _mm512_storeu_si512(to + (12 + c) * to_stride, _mm512_shuffle_i32x4(high, high2, 0xdd));
  }
}

}  // namespace msa::cpu::tiles::MSA_TILE_ENGINE
