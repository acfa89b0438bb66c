// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>

/// \file
/// AMX tile instructions and the vector steps around them, for sources that are compiled with
/// MSA_AMX_OPTIONS. Nothing else may include this file, and such a source calls no inline function
/// of other headers: the linker would keep one copy of it, perhaps this one, for machines without
/// AVX-512 too.
///
/// The instructions are written out because GCC 12's intrinsics do not tell the compiler which
/// memory they read: stores before them vanish.
///
/// Every tile has 16 rows of 64 bytes: as C 16 × 16 f32, as A 16 rows of 32 bf16, as B 16 pairs of
/// rows, each 16 columns of two bf16 (a **pair** is one 32-bit word).

namespace msa::cpu::amx {

#define MSA_AMX_INLINE __attribute__((always_inline)) inline

inline constexpr int tile_rows = 16;
/// Elements of a row of A: what one instruction sums over.
inline constexpr int tile_depth = 32;

/// Gives all eight tiles their shape.
MSA_AMX_INLINE void configure_tiles() {
  alignas(64) std::uint8_t config[64] = {1};  // palette 1
  for (int t = 0; t < 8; ++t) {
    config[16 + 2 * t] = 64;  // bytes of a row
    config[48 + t] = tile_rows;
  }
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

/// Ends the use of tiles: their 8 KB need not be saved when the thread is switched any more.
MSA_AMX_INLINE void release_tiles() { asm volatile("tilerelease" ::: "memory"); }

template <int tile>
MSA_AMX_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}

/// 16 rows from `from` on, `stride` bytes apart.
template <int tile>
MSA_AMX_INLINE void load(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
}

template <int tile>
MSA_AMX_INLINE void store(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
}

/// C += A · B, products exact, sums f32 to nearest even; denormal operands and sums count as 0.
template <int c, int a, int b>
MSA_AMX_INLINE void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}

/// 16 × 16 words, rows `from_stride` and `to_stride` words apart.
MSA_AMX_INLINE void transpose(const std::uint32_t* from, std::int64_t from_stride,
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
MSA_AMX_INLINE void transpose(const __m512i (&rows)[16], std::uint32_t* to,
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

}  // namespace msa::cpu::amx
