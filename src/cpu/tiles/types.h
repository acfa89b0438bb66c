// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file
/// Tile code as plain functions over plain structs. Its sources are compiled for AVX-512, once for
/// each engine, and share no inline function with others: the linker would keep one copy of it,
/// perhaps theirs, for machines without AVX-512 too.

namespace msa::cpu::tiles {

/// Element types whose values bf16 holds.
enum class CacheType { bf16, e4m3, e5m2 };

/// Rows of q that one tile holds.
inline constexpr int group_rows = 16;

// ---- attend ----

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
inline constexpr std::int64_t attend_work_bytes = 96 << 10;

// ---- indexer ----

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
inline constexpr std::int64_t index_work_bytes = 64 << 10;

// ---- engines ----

/// What one engine computes.
struct Kernels {
  /// Called on each thread around attend_block().
  void (*begin)();
  void (*end)();

  /// Packs 16 rows of attend's q, `rows` of which exist, and returns which of them are inexact in
  /// tiles: those with an element that is a denormal number as bf16, and those whose `scale` would
  /// lift what tiles flush.
  std::uint16_t (*pack_queries)(const float* q, const float* scale, int rows,
                                std::uint32_t* q_tile);
  /// Folds a block into the softmax of `count` groups. `next` (keys 0: none) is fetched meanwhile.
  void (*attend_block)(const AttendBlock& block, const AttendBlock& next, const AttendGroup* groups,
                       std::int64_t count, const AttendRows& rows, void* work);

  /// Packs 16 rows of the indexer's q, `rows` of which exist, and returns which of them are inexact
  /// in tiles.
  std::uint16_t (*pack_index_queries)(const float* q, int rows, std::uint32_t* q_tile);
  /// scores[row] = largest product of the row with a visible key: NaN if one of them is, −inf where
  /// none is visible. `next` (count 0: none) is fetched meanwhile.
  void (*score_keys)(const IndexKeys& keys, const IndexKeys& next, const IndexRows& rows,
                     void* work, float* scores);
};

/// Products by AMX (tile registers), and by AVX512-BF16 (16 vector registers).
extern const Kernels amx_kernels, avx512_bf16_kernels;

}  // namespace msa::cpu::tiles
