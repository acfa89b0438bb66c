// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "cpu/index_kernel.h"
#include "cpu/index_plan.h"
#include "cpu/operators.h"
#include "cpu/parallel.h"
#include "cpu/select.h"

namespace msa::cpu {
namespace {

constexpr float negative_infinity = -std::numeric_limits<float>::infinity();

/// Scores of a tile's rows, block after block.
template <class Args>
class Scorer {
 public:
  Scorer(const Args& args, const IndexTile& tile, float* scratch)
      : batch_(args.batch), cache_(args.index_cache), tile_(tile), scratch_(scratch) {
    const ConstTensor& q = args.index_q;
    const auto element = static_cast<std::int64_t>(size_of(q.dtype));
    queries_.data = q.ptr<char>() + tile.first_token * q.stride[0] * element;
    queries_.dtype = q.dtype;
    queries_.key_dtype = cache_.dtype;
    queries_.token_stride = q.stride[0];
    queries_.head_stride = q.stride[1];
    queries_.tokens = tile.tokens;
    queries_.heads = q.shape[1];
    queries_.direct = tile.decode && batch_.decode_query_len * queries_.heads <= max_direct_rows;
  }

  /// consume(block, scores[tokens · heads]) for each block in [first, last).
  template <class Consume>
  void run(std::int64_t first, std::int64_t last, Consume&& consume) {
    const ScoreKernels kernels = score_kernels();
    float scores[max_tile_rows];
    kernels.load_queries(queries_, scratch_);
    for (std::int64_t b = first; b < last; ++b) {
      const std::int64_t page = page_of(b);
      if (page < 0) {
        std::fill_n(scores, queries_.rows(), negative_infinity);
      } else {
        KeyBlock block = key_block(b, page);
        const std::int64_t next = b + 1 < last ? page_of(b + 1) : -1;
        if (next >= 0) block.next = key_block(b + 1, next).data;
        kernels.score_block(queries_, block, scratch_, scores);
      }
      consume(b, scores);
    }
  }

 private:
  /// The page in the table's cell, −1 where it names none.
  std::int64_t page_of(std::int64_t block) const {
    const ConstTensor& table = batch_.block_table;
    if (block >= table.shape[1]) return -1;
    const std::int64_t page =
        table.ptr<std::int32_t>()[tile_.request * table.stride[0] + block * table.stride[1]];
    return page < cache_.shape[0] ? page : -1;
  }

  KeyBlock key_block(std::int64_t block, std::int64_t page) const {
    const auto element = static_cast<std::int64_t>(size_of(cache_.dtype));
    const std::int64_t start = block * page_size;
    return {cache_.ptr<char>() + page * cache_.stride[0] * element, cache_.stride[1],
            std::min<std::int64_t>(tile_.keys - start, page_size), tile_.first_visible - start};
  }

  const BatchMetadata& batch_;
  const ConstTensor& cache_;
  const IndexTile& tile_;
  float* scratch_;
  QueryTile queries_;
};

std::int64_t lists_of(const IndexArgs& args) { return args.selection.shape[1]; }
std::int64_t topk_of(const IndexArgs& args) { return args.selection.shape[2]; }

/// Writes a tile's rows from lists `best[tokens][Hs][topk]`.
void write_rows(const IndexArgs& args, const IndexTile& tile, const BlockKey* best) {
  const Tensor& out = args.selection;
  for (std::int64_t t = 0; t < tile.tokens; ++t) {
    for (std::int64_t list = 0; list < lists_of(args); ++list, best += topk_of(args)) {
      auto* ids =
          out.ptr<std::int32_t>() + (tile.first_token + t) * out.stride[0] + list * out.stride[1];
      write_ids(best, topk_of(args), ids, out.stride[2]);
    }
  }
}

/// The best blocks of a part of a tile's context, into `best[tokens][Hs][topk]`.
void select_part(const IndexArgs& args, const IndexTile& tile, std::int64_t first,
                 std::int64_t last, float* scratch, BlockKey* best) {
  const std::int64_t heads = args.index_q.shape[1], lists = lists_of(args), topk = topk_of(args);
  std::fill_n(best, tile.tokens * lists * topk, BlockKey{0});
  RowOrder order[max_tile_rows];
  bool all_fit = true;
  for (std::int64_t t = 0; t < tile.tokens; ++t) {
    order[t] = RowOrder(tile.valid_blocks(t), args.rule);
    all_fit = all_fit && order[t].valid() <= topk;
  }
  const auto take = [&](std::int64_t block, const float* scores) {
    BlockKey* to = best;
    for (std::int64_t t = 0; t < tile.tokens; ++t, scores += heads) {
      for (std::int64_t list = 0; list < lists; ++list, to += topk) {
        if (block >= order[t].valid()) continue;
        float score = scores[list];
        for (std::int64_t h = 1; args.rule.reduce_heads && h < heads; ++h) {
          score = larger_score(score, scores[h]);
        }
        offer(to, topk, order[t].key(block, score));
      }
    }
  };
  if (all_fit) {
    // Every block is chosen whatever its score: no key is read.
    const float none[max_tile_rows] = {};
    for (std::int64_t b = first; b < last; ++b) take(b, none);
    return;
  }
  Scorer(args, tile, scratch).run(first, last, take);
}

/// Memory of one task: the kernels' scratch, then the lists of a tile.
struct TaskMemory {
  TaskMemory(std::int64_t rows, std::int64_t keys) {
    const std::int64_t score_bytes = score_scratch_bytes(rows);
    auto* memory = static_cast<char*>(thread_scratch(
        static_cast<std::size_t>(score_bytes) + static_cast<std::size_t>(keys) * sizeof(BlockKey)));
    scratch = reinterpret_cast<float*>(memory);
    best = reinterpret_cast<BlockKey*>(memory + score_bytes);
  }
  float* scratch;
  BlockKey* best;
};

/// The lists of a tile's parts as one.
void merge_parts(const IndexArgs& args, const IndexTile& tile, const BlockKey* parts,
                 BlockKey* best) {
  const std::int64_t topk = topk_of(args), lists = tile.tokens * lists_of(args);
  std::fill_n(best, lists * topk, BlockKey{0});
  for (std::int64_t i = 0; i < tile.parts * lists * topk; ++i) {
    offer(best + i / topk % lists * topk, topk, parts[i]);
  }
}

}  // namespace

std::size_t workspace_size(const IndexArgs& args) {
  return index_workspace_bytes(args.batch, args.index_q.shape[1], lists_of(args), topk_of(args),
                               args.workspace_cap);
}

void index_blocks(const IndexArgs& args) {
  const std::int64_t heads = args.index_q.shape[1], lists = lists_of(args), topk = topk_of(args);
  std::vector<IndexTile> tiles = index_tiles(args.batch, heads);
  void* memory = args.workspace.data;
  std::size_t bytes = std::min(args.workspace.bytes, args.workspace_cap);
  if (memory == nullptr || std::align(alignof(BlockKey), 0, memory, bytes) == nullptr) bytes = 0;
  auto* const pool = static_cast<BlockKey*>(memory);
  const std::vector<IndexPart> parts = split_tiles(tiles, heads, lists, topk, bytes, num_threads());
  parallel_for(static_cast<std::int64_t>(parts.size()), [&](std::int64_t i) {
    const IndexPart& part = parts[i];
    const IndexTile& tile = tiles[part.tile];
    const std::int64_t keys = tile.tokens * lists * topk;
    const TaskMemory memory(tile.tokens * heads, keys);
    const bool whole = tile.parts <= 1;
    BlockKey* best = whole ? memory.best : pool + tile.pool_offset + part.index * keys;
    select_part(args, tile, part.first_block, part.last_block, memory.scratch, best);
    if (whole) write_rows(args, tile, best);
  });
  std::vector<const IndexTile*> split;
  for (const IndexTile& tile : tiles) {
    if (tile.parts > 1) split.push_back(&tile);
  }
  parallel_for(static_cast<std::int64_t>(split.size()), [&](std::int64_t i) {
    const IndexTile& tile = *split[i];
    const TaskMemory memory(0, tile.tokens * lists * topk);
    merge_parts(args, tile, pool + tile.pool_offset, memory.best);
    write_rows(args, tile, memory.best);
  });
}

std::size_t workspace_size(const IndexScoresArgs&) { return 0; }

void index_scores(const IndexScoresArgs& args) {
  constexpr std::int64_t part_blocks = 32;
  const std::int64_t heads = args.index_q.shape[1], blocks = args.scores.shape[1];
  if (blocks == 0) return;  // T is any number then, and not worth a tile
  const std::vector<IndexTile> tiles = index_tiles(args.batch, heads);
  const std::int64_t parts = (blocks + part_blocks - 1) / part_blocks;
  const Tensor& out = args.scores;
  parallel_for(static_cast<std::int64_t>(tiles.size()) * parts, [&](std::int64_t i) {
    const IndexTile& tile = tiles[i / parts];
    const std::int64_t first = i % parts * part_blocks;
    const std::int64_t last = std::min(first + part_blocks, blocks);
    auto* const to = out.ptr<float>() + tile.first_token * out.stride[2];
    const auto keep = [&](std::int64_t block, const float* scores) {
      for (std::int64_t t = 0; t < tile.tokens; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          to[h * out.stride[0] + block * out.stride[1] + t * out.stride[2]] = scores[t * heads + h];
        }
      }
    };
    const std::int64_t scored = std::clamp(tile.blocks(), first, last);
    if (scored > first) {
      const TaskMemory memory(tile.tokens * heads, 0);
      Scorer(args, tile, memory.scratch).run(first, scored, keep);
    }
    float none[max_tile_rows];
    std::fill_n(none, max_tile_rows, negative_infinity);
    for (std::int64_t b = scored; b < last; ++b) keep(b, none);
  });
}

}  // namespace msa::cpu
