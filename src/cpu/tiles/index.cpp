// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/tiles/index.h"

#include <algorithm>

#include "cpu/tiles/kernels.h"

namespace msa::cpu {
namespace {

constexpr std::int64_t group_rows = tiles::group_rows;
constexpr std::int64_t pairs = head_dim / 2;

std::int64_t groups_of(std::int64_t rows) { return (rows + group_rows - 1) / group_rows; }

/// Where a tile's scratch memory holds what. The vector code's queries come first there too.
struct TileScratch {
  TileScratch(float* memory, std::int64_t rows)
      : queries(memory),
        q_tiles(reinterpret_cast<std::uint32_t*>(memory + rows * head_dim)),
        work(q_tiles + groups_of(rows) * group_rows * pairs),
        inexact(reinterpret_cast<std::uint16_t*>(static_cast<std::uint32_t*>(work) +
                                                 tiles::index_work_bytes / 4)) {}

  float* queries;          // [rows][128]
  std::uint32_t* q_tiles;  // [groups][64][16]
  void* work;
  std::uint16_t* inexact;  // [groups]
};

bool on_tiles(const QueryTile& tile) {
  return tile.dtype == DType::bf16 || tile.dtype == DType::e4m3;
}

void load_queries(const QueryTile& tile, float* memory) {
  const ScoreKernels vector = vector_score_kernels();
  if (!on_tiles(tile)) return vector.load_queries(tile, memory);
  QueryTile in_order = tile;
  in_order.direct = false;
  vector.load_queries(in_order, memory);
  const TileScratch scratch(memory, tile.rows());
  for (std::int64_t g = 0; g < groups_of(tile.rows()); ++g) {
    const std::int64_t first = g * group_rows;
    scratch.inexact[g] = tiles::kernels()->pack_index_queries(
        scratch.queries + first * head_dim,
        static_cast<int>(std::min(group_rows, tile.rows() - first)),
        scratch.q_tiles + first * pairs);
  }
}

void score_block(const QueryTile& tile, const KeyBlock& block, float* memory, float* scores) {
  if (!on_tiles(tile)) return vector_score_kernels().score_block(tile, block, memory, scores);
  const TileScratch scratch(memory, tile.rows());
  const auto size = static_cast<std::int64_t>(size_of(tile.key_dtype));
  std::int32_t visible[max_tile_rows];
  for (std::int64_t t = 0; t < tile.tokens; ++t) {
    std::fill_n(visible + t * tile.heads, tile.heads,
                static_cast<std::int32_t>(
                    std::clamp<std::int64_t>(block.first_visible + t, 0, block.readable)));
  }
  tiles::IndexKeys keys{
      tile.key_dtype == DType::bf16 ? tiles::CacheType::bf16 : tiles::CacheType::e4m3, block.data,
      block.token_stride * size, static_cast<int>(block.readable)};
  tiles::IndexKeys next = keys;
  next.data = block.next;
  if (block.next == nullptr) next.count = 0;
  tiles::kernels()->score_keys(
      keys, next,
      {scratch.queries, scratch.q_tiles, scratch.inexact, visible, static_cast<int>(tile.rows())},
      scratch.work, scores);
}

}  // namespace

std::int64_t tile_scratch_floats(std::int64_t rows) {
  // The queries' tiles start at a multiple of 64 bytes, as rows of 128 floats do, and so does what
  // the caller keeps behind this.
  const std::int64_t floats =
      rows * head_dim + groups_of(rows) * (group_rows * pairs + 1) + tiles::index_work_bytes / 4;
  return (floats + 15) / 16 * 16;
}

ScoreKernels tile_score_kernels() { return {load_queries, score_block}; }

}  // namespace msa::cpu
