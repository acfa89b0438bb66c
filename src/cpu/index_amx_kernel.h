// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/amx_types.h"

/// \file
/// The tile code of the indexer, as plain functions over plain structs (cpu/amx.h says why).

namespace msa::cpu::amx {

/// Keys of a block, as they lie in the cache.
struct IndexKeys {
  CacheType type = CacheType::bf16;
  const void* data = nullptr;  // [count][128]
  std::int64_t stride = 0;     // bytes
  int count = 0;               // at most 128
};

/// The rows' memory; row r of group g is row 16 g + r.
struct IndexRows {
  const float* q = nullptr;                // [rows][128], exact in bf16
  const std::uint32_t* q_tiles = nullptr;  // [groups][64][16]: pairs of elements of 16 rows
  const std::uint16_t* inexact = nullptr;  // [groups]: rows whose products no tile may compute
  const std::int32_t* visible = nullptr;  // [groups · 16]: keys that the row sees, at most `count`
  int rows = 0;
};

/// Bytes of working memory, 64-byte aligned.
inline constexpr std::int64_t index_work_bytes = 48 << 10;

/// Packs 16 rows of q, `rows` of which exist, and returns which of them are inexact in tiles.
std::uint16_t pack_index_queries(const float* q, int rows, std::uint32_t* q_tile);

/// scores[row] = largest product of the row with a visible key: NaN if one of them is, −inf where
/// none is visible. `next` (count 0: none) is fetched meanwhile.
void score_keys(const IndexKeys& keys, const IndexKeys& next, const IndexRows& rows, void* work,
                float* scores);

}  // namespace msa::cpu::amx
