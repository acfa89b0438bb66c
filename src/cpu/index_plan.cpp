// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/index_plan.h"

#include <limits>

namespace msa::cpu {
namespace {

/// Rows (tokens · heads) of a prefill tile: converting a page costs about as much as 6 rows of f32,
/// with AMX as 40 (512 rows take 12 % less time than 192 there and in AVX-512), and the rows'
/// queries, 256 KB, stay in the second-level cache.
constexpr std::int64_t prefill_rows = 512;
/// Fewest blocks worth a task of its own.
constexpr std::int64_t least_part = 16;
/// Most tasks that tiles are split into, for a bound of the workspace that knows no thread count.
constexpr std::int64_t most_parts = 256;
/// A first estimate of a page's conversion, in rows.
constexpr std::int64_t page_cost = 6;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t prefill_tokens(std::int64_t heads) {
  return std::max<std::int64_t>(1, prefill_rows / heads);
}

std::int64_t i32(const ConstTensor& t, std::int64_t i) {
  return t.ptr<std::int32_t>()[i * t.stride[0]];
}

/// Appends tiles of at most `most` rows for rows [begin, end), described by `first`, the tile that
/// row `begin` would start.
void append(std::vector<IndexTile>& tiles, IndexTile first, std::int64_t end, std::int64_t most) {
  for (; first.first_token < end; first.first_token += most, first.first_visible += most) {
    first.tokens = std::min(most, end - first.first_token);
    tiles.push_back(first);
  }
}

/// Cost of one block of a tile.
std::int64_t block_cost(const IndexTile& tile, std::int64_t heads) {
  return page_cost + tile.tokens * heads;
}

/// Blocks of a tile's parts where a part is to cost about `cost`.
std::int64_t part_blocks(const IndexTile& tile, std::int64_t heads, std::int64_t cost) {
  return std::max(least_part, cost / block_cost(tile, heads));
}

}  // namespace

std::vector<IndexTile> index_tiles(const BatchMetadata& batch, std::int64_t heads) {
  const std::int64_t tokens = batch.num_actual_tokens, m = batch.decode_query_len;
  const std::int64_t decode_tokens = std::min(tokens, batch.num_decode_tokens());
  std::vector<IndexTile> tiles;
  for (std::int64_t r = 0; r < batch.num_decodes; ++r) {
    const std::int64_t keys = std::max<std::int64_t>(0, i32(batch.seq_lens, r));
    append(tiles,
           {.request = r,
            .first_token = r * m,
            .first_visible = keys - m + 1,
            .keys = keys,
            .decode = true},
           std::min((r + 1) * m, tokens), m);
  }
  std::int64_t covered = decode_tokens;
  const std::int64_t most = prefill_tokens(heads);
  for (std::int64_t p = 0; p < batch.num_prefills; ++p) {
    const std::int64_t r = batch.num_decodes + p;
    const std::int64_t keys = std::max<std::int64_t>(0, i32(batch.seq_lens, r));
    const std::int64_t begin = decode_tokens + i32(batch.cu_seqlens_q, p);
    const std::int64_t end =
        std::clamp(decode_tokens + i32(batch.cu_seqlens_q, p + 1), covered, tokens);
    const std::int64_t from = std::clamp(begin, covered, end);
    append(tiles, {.first_token = covered}, from, most);
    append(tiles,
           {.request = r,
            .first_token = from,
            .first_visible = i32(batch.context_lens, p) + (from - begin) + 1,
            .keys = keys},
           end, most);
    covered = end;
  }
  append(tiles, {.first_token = covered}, tokens, most);
  return tiles;
}

std::vector<IndexPart> split_tiles(std::vector<IndexTile>& tiles, std::int64_t heads,
                                   std::int64_t lists, std::int64_t topk,
                                   std::size_t workspace_bytes, int threads) {
  const auto room = static_cast<std::int64_t>(workspace_bytes / sizeof(std::uint64_t));
  std::int64_t total = 0;
  for (const IndexTile& tile : tiles) total += tile.blocks() * block_cost(tile, heads);
  // Four parts a thread even out what the estimate of costs misses.
  const std::int64_t wanted =
      threads == 1 ? 1 : std::min<std::int64_t>(most_parts, std::int64_t{4} * threads);
  std::int64_t cost = ceil_div(total, wanted), used = 0, count = 0;
  do {
    used = count = 0;
    for (IndexTile& tile : tiles) {
      const std::int64_t blocks = tile.blocks();
      const std::int64_t parts =
          std::max<std::int64_t>(1, ceil_div(blocks, part_blocks(tile, heads, cost)));
      tile.parts = parts;
      tile.pool_offset = used;
      if (parts > 1) used += parts * tile.tokens * lists * topk;
      count += parts;
    }
    cost = 2 * cost + 1;
  } while (used > room);

  std::vector<IndexPart> result;
  result.reserve(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const std::int64_t blocks = tiles[i].blocks(), parts = tiles[i].parts;
    for (std::int64_t p = 0; p < parts; ++p) {
      result.push_back(
          {static_cast<std::int64_t>(i), p, blocks * p / parts, blocks * (p + 1) / parts});
    }
  }
  return result;
}

std::size_t index_workspace_bytes(const BatchMetadata& batch, std::int64_t heads,
                                  std::int64_t lists, std::int64_t topk, std::size_t cap) {
  const std::int64_t most_blocks =
      ceil_div(std::max<std::int64_t>(0, batch.max_seq_len), page_size);
  if (most_blocks <= least_part) return 0;
  // At most most_parts tiles are split, into at most 2 · most_parts parts together.
  const std::int64_t tile_tokens =
      std::max(batch.num_decodes > 0 ? batch.decode_query_len : 0,
               batch.num_prefills > 0 ? std::min(prefill_tokens(heads), batch.max_query_len) : 0);
  const std::int64_t by_tasks = 2 * most_parts * tile_tokens;
  const std::int64_t by_blocks = batch.num_actual_tokens * ceil_div(most_blocks, least_part);
  const std::int64_t entries = std::min(by_tasks, by_blocks) * lists * topk;
  // One entry more, for a workspace that is not aligned to them.
  return std::min(cap, static_cast<std::size_t>(entries + 1) * sizeof(std::uint64_t));
}

}  // namespace msa::cpu
