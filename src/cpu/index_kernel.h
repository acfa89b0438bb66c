// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/types.h"

/// \file
/// Scores of one block for a tile of rows: the arithmetic of index_blocks and index_scores, and all
/// of it. A score is the same bits whatever tile, task or buffer it was computed in.

namespace msa::cpu {

/// Rows of one request whose scores are computed together; row = token · heads + head.
struct QueryTile {
  const void* data = nullptr;  // index_q of the tile's first token, [tokens, heads, 128]
  DType dtype = DType::bf16;
  DType key_dtype = DType::bf16;  // of the blocks to come
  std::int64_t token_stride = 0;  // elements
  std::int64_t head_stride = 0;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  /// How vector code sums a dot product; a function of "decode with this m and Hi" or "prefill".
  /// false: keys on vector lanes, one chain over the 128 elements. true: elements on lanes, which
  /// needs no transposed page: for a few rows, where reading the keys is all that counts.
  bool direct = false;

  std::int64_t rows() const { return tokens * heads; }
};

/// Most rows of a direct tile.
inline constexpr std::int64_t max_direct_rows = 4;
/// Most rows of any tile: a decode request of 16 tokens and 16 heads.
inline constexpr std::int64_t max_tile_rows = 512;

/// The keys of one block.
struct KeyBlock {
  const void* data = nullptr;      // [readable, 128] of the tile's key_dtype
  std::int64_t token_stride = 0;   // elements
  std::int64_t readable = 0;       // 1 to 128: keys past it are never read
  std::int64_t first_visible = 0;  // token i of the tile sees keys below first_visible + i
  const void* next = nullptr;      // the block scored next, to be fetched; null: none
};

/// Bytes of scratch memory for tiles of up to `rows` rows.
std::int64_t score_scratch_bytes(std::int64_t rows);

struct ScoreKernels {
  /// Converts the tile's queries into the scratch memory (64-byte aligned).
  void (*load_queries)(const QueryTile& tile, float* scratch);
  /// scores[row] = largest product of the row with a visible key: NaN if one of them is, −inf where
  /// none is visible. Neither −0 nor any other NaN than the canonical one comes out.
  void (*score_block)(const QueryTile& tile, const KeyBlock& block, float* scratch, float* scores);
};
/// For the chosen instruction set.
ScoreKernels score_kernels();
/// The vector code alone: the set's own, with amx and avx512_bf16 that of avx512.
ScoreKernels vector_score_kernels();

}  // namespace msa::cpu
