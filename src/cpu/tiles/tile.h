// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What a tile is. It has 16 rows of 64 bytes: as C 16 × 16 f32, as A 16 rows of 32 bf16, as B 16
/// pairs of rows, each 16 columns of two bf16 (a **pair** is one 32-bit word). C += A · B is one
/// instruction of AMX and 256 of AVX512-BF16, which holds a part of C in vector registers.

namespace msa::cpu::tiles {

#define MSA_TILE_INLINE __attribute__((always_inline)) inline

inline constexpr int tile_rows = 16;
/// Elements of a row of A: what C += A · B sums over.
inline constexpr int tile_depth = 32;
inline constexpr int tile_words = tile_rows * tile_rows;  // 1 KB: 16 rows of 16 words

}  // namespace msa::cpu::tiles
