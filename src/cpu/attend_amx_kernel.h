// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/amx_types.h"

/// \file
/// The tile code of attend, as plain functions over plain structs: its source is compiled for
/// AVX-512 and AMX and shares no inline function with others (cpu/amx.h).

namespace msa::cpu::amx {

/// Rows of q that one tile holds.
inline constexpr int group_rows = 16;

/// The visible keys of a block, as they lie in the cache.
struct AttendBlock {
  CacheType type = CacheType::bf16;
  const void* k = nullptr;  // [keys][128]
  const void* v = nullptr;
  std::int64_t k_stride = 0, v_stride = 0;  // bytes
  int keys = 0;                             // 1 to 128
};

/// 16 neighbouring rows of the tile, of which `rows` exist.
struct AttendGroup {
  alignas(64) std::int32_t visible[group_rows];  // keys of the block; 0: the row did not choose it
  std::int64_t first = 0;
  int rows = 0;
};

/// The rows' memory; row r of group g is row 16 g + r.
struct AttendRows {
  const float* q = nullptr;                // [rows][128], scaled
  const std::uint32_t* q_tiles = nullptr;  // [groups][64][16]: pairs of elements of 16 rows
  const std::uint16_t* inexact = nullptr;  // [groups]: rows whose logits no tile may compute
  const float* scale = nullptr;            // [rows]
  float* maximum = nullptr;                // [rows]
  float* sum = nullptr;                    // [rows]
  float* out = nullptr;                    // [rows][128]
};

/// Bytes of working memory, 64-byte aligned.
inline constexpr std::int64_t attend_work_bytes = 88 << 10;

/// Packs 16 rows of q, `rows` of which exist, and returns which of them are inexact in tiles: those
/// with an element that is a denormal number as bf16, and those whose `scale` would lift what tiles
/// flush.
std::uint16_t pack_queries(const float* q, const float* scale, int rows, std::uint32_t* q_tile);

/// Folds a block into the softmax of `count` groups. `next` (keys 0: none) is fetched meanwhile.
void attend_block(const AttendBlock& block, const AttendBlock& next, const AttendGroup* groups,
                  std::int64_t count, const AttendRows& rows, void* work);

}  // namespace msa::cpu::amx
