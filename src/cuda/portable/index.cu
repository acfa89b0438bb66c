// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <type_traits>

#include "cuda/common/batch.cuh"
#include "cuda/common/convert.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/warp.cuh"
#include "cuda/common/workspace.h"
#include "cuda/portable/operators.h"
#include "cuda/portable/top_list.cuh"

/// \file
/// index_blocks and index_scores: one CTA scores a range of one token's blocks for all index heads,
/// a key a thread. A score is one chain of f32 multiply-adds over the 128 elements and a maximum,
/// so its bits depend on the query and the keys alone. index_blocks keeps each range's best blocks;
/// a second kernel merges the ranges' lists.

namespace msa::cuda::portable {
namespace {

constexpr float negative_infinity = -INFINITY;

struct IndexParams {
  template <class Args>
  explicit IndexParams(const Args& args);

  const void* q;  // [T, Hi, 128]
  DType q_type;
  std::int64_t q_token, q_head;
  const char* keys;                  // [pages, 128, 128]
  std::int64_t key_page, key_token;  // strides in elements
  std::int64_t pages;
  bool aligned;  // rows of keys start at multiples of 16 bytes
  int heads;     // Hi
  BatchView batch;
  std::int64_t parts = 1;  // of a token's blocks
  std::int64_t items = 0;  // T · parts
};

struct SelectParams : IndexParams {
  explicit SelectParams(const IndexArgs& args);

  SelectRule rule;
  int lists;  // Hs
  int topk;
  std::int32_t* selection;  // [T, Hs, topk]
  std::int64_t selection_token, selection_list, selection_slot;
  BlockKey* partial;  // [T, parts, Hs, topk] where there are several parts
};

struct ScoreParams : IndexParams {
  explicit ScoreParams(const IndexScoresArgs& args);

  float* scores;  // [Hi, blocks, T]
  std::int64_t score_head, score_block, score_token;
  std::int64_t blocks;
};

/// Blocks that index_scores gives one CTA.
constexpr std::int64_t score_part = 16;

constexpr int key_warps = list_threads / warp_size;

template <int rows>
struct ScoreShared {
  alignas(16) float q[rows][head_dim];
  float best[2][key_warps]
            [rows];  // of the warps; two blocks in turn, so that one barrier is enough
};

/// One token's queries as f32.
template <int rows>
__device__ void load_queries(const IndexParams& p, std::int64_t token, ScoreShared<rows>& s) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * head_dim; i += list_threads) {
    const int head = i / head_dim, d = i % head_dim;
    s.q[head][d] =
        head < p.heads ? load(p.q_type, p.q, token * p.q_token + head * p.q_head + d) : 0.0f;
  }
}

/// This thread's key against all heads.
template <DType type, int rows>
__device__ void multiply(const IndexParams& p, const char* key, const ScoreShared<rows>& s,
                         float* dot) {
  using Chunk = RowChunk<type>;
  for (int begin = 0; begin < head_dim; begin += Chunk::elements) {
    Chunk chunk;
    chunk.load(key + begin * static_cast<int>(size_of(type)), p.aligned);
#pragma unroll
    for (int d = 0; d < Chunk::elements; d += 4) {
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const float4 q = *reinterpret_cast<const float4*>(&s.q[r][begin + d]);
        dot[r] = fmaf(q.x, chunk[d], dot[r]);
        dot[r] = fmaf(q.y, chunk[d + 1], dot[r]);
        dot[r] = fmaf(q.z, chunk[d + 2], dot[r]);
        dot[r] = fmaf(q.w, chunk[d + 3], dot[r]);
      }
    }
  }
}

/// Scores of blocks [first, last) of a row: consume(block, head, score) in thread `head`. Blocks
/// past the row's keys score −inf. All threads of the CTA call it together.
template <DType type, int rows, class Consume>
__device__ void score_blocks(const IndexParams& p, const RowPlace& row, std::int64_t first,
                             std::int64_t last, ScoreShared<rows>& s, Consume consume) {
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t block = first; block < last; ++block) {
    float best[rows];
    for (int r = 0; r < rows; ++r) best[r] = negative_infinity;
    const std::int64_t visible = row.visible - block * page_size;
    if (thread < visible) {
      const std::int64_t page = find_page(p.batch, row.request, block, p.pages);
      if (page >= 0) {
        for (int r = 0; r < rows; ++r) best[r] = 0;
        const std::int64_t key = page * p.key_page + thread * p.key_token;
        multiply<type>(p, p.keys + key * static_cast<std::int64_t>(size_of(type)), s, best);
      }
    }
    auto& of_warps = s.best[block & 1];
    for (int r = 0; r < rows; ++r) {
      best[r] = warp_reduce(best[r], [](float a, float b) { return larger_score(a, b); });
      if (thread % warp_size == 0) of_warps[thread / warp_size][r] = best[r];
    }
    __syncthreads();
    if (thread < p.heads) {
      float score = of_warps[0][thread];
      for (int w = 1; w < key_warps; ++w) score = larger_score(score, of_warps[w][thread]);
      // One NaN and one zero, whatever the products' were.
      consume(block, thread, score != score ? __uint_as_float(0x7fc00000) : score + 0.0f);
    }
  }
}

/// The best blocks of one part of each row.
template <DType type, int rows>
__global__ __launch_bounds__(list_threads, 4) void select_kernel(const SelectParams p) {
  __shared__ ScoreShared<rows> s;
  __shared__ float scores[list_threads][rows];  // of a tile of blocks
  __shared__ TopList best[rows];
  __shared__ TopListScratch scratch;
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t item = blockIdx.x; item < p.items; item += gridDim.x) {
    const std::int64_t token = item / p.parts, part = item % p.parts;
    const RowPlace row = find_row(p.batch, token);
    const RowOrder order((row.visible + page_size - 1) / page_size, p.rule);
    const std::int64_t first = order.valid() * part / p.parts;
    const std::int64_t last = order.valid() * (part + 1) / p.parts;
    const bool all_fit = order.valid() <= p.topk;  // every block is chosen: no key is read
    for (int list = 0; list < p.lists; ++list) best[list].clear();
    if (!all_fit) load_queries<rows>(p, token, s);
    __syncthreads();
    for (std::int64_t tile = first; tile < last; tile += list_threads) {
      const std::int64_t end = min(tile + list_threads, last);
      if (!all_fit) {
        score_blocks<type, rows>(
            p, row, tile, end, s,
            [&](std::int64_t block, int head, float score) { scores[block - tile][head] = score; });
      }
      __syncthreads();
      for (int list = 0; list < p.lists; ++list) {
        BlockKey key = 0;
        if (tile + thread < end) {
          float score = all_fit ? 0.0f : scores[thread][list];
          for (int h = 1; p.rule.reduce_heads && !all_fit && h < p.heads; ++h) {
            score = larger_score(score, scores[thread][h]);
          }
          key = order.key(tile + thread, score);
        }
        best[list].add(key, p.topk, scratch);
      }
    }
    for (int list = 0; list < p.lists; ++list) {
      if (p.parts > 1) {
        if (thread < p.topk) {
          p.partial[(item * p.lists + list) * p.topk + thread] = best[list].best[thread];
        }
      } else {
        best[list].write_ids(p.topk,
                             p.selection + token * p.selection_token + list * p.selection_list,
                             p.selection_slot);
      }
    }
    __syncthreads();
  }
}

/// The lists of a row's parts as one: a CTA a row and list.
__global__ __launch_bounds__(list_threads) void merge_lists_kernel(const SelectParams p) {
  __shared__ TopList best;
  __shared__ TopListScratch scratch;
  for (std::int64_t item = blockIdx.x; item < p.items; item += gridDim.x) {
    const std::int64_t token = item / p.lists, list = item % p.lists;
    best.clear();
    __syncthreads();
    const std::int64_t keys = p.parts * p.topk;
    for (std::int64_t tile = 0; tile < keys; tile += list_threads) {
      const std::int64_t i = tile + threadIdx.x;
      BlockKey key = 0;
      if (i < keys) {
        const std::int64_t part = i / p.topk;
        key = p.partial[((token * p.parts + part) * p.lists + list) * p.topk + i % p.topk];
      }
      best.add(key, p.topk, scratch);
    }
    best.write_ids(p.topk, p.selection + token * p.selection_token + list * p.selection_list,
                   p.selection_slot);
    __syncthreads();
  }
}

template <DType type, int rows>
__global__ __launch_bounds__(list_threads) void score_kernel(const ScoreParams p) {
  __shared__ ScoreShared<rows> s;
  for (std::int64_t item = blockIdx.x; item < p.items; item += gridDim.x) {
    const std::int64_t token = item / p.parts, first = item % p.parts * score_part;
    const std::int64_t last = min(first + score_part, p.blocks);
    const RowPlace row = find_row(p.batch, token);
    const std::int64_t valid = (row.visible + page_size - 1) / page_size;
    const std::int64_t scored = min(max(valid, first), last);
    float* const to = p.scores + token * p.score_token;
    if (scored > first) {
      load_queries<rows>(p, token, s);
      __syncthreads();
      score_blocks<type, rows>(p, row, first, scored, s,
                               [&](std::int64_t block, int head, float score) {
                                 to[head * p.score_head + block * p.score_block] = score;
                               });
    }
    const std::int64_t rest = (last - scored) * p.heads;
    for (std::int64_t i = threadIdx.x; i < rest; i += list_threads) {
      to[i % p.heads * p.score_head + (scored + i / p.heads) * p.score_block] = negative_infinity;
    }
    __syncthreads();
  }
}

template <class Args>
IndexParams::IndexParams(const Args& args)
    : q(args.index_q.data),
      q_type(args.index_q.dtype),
      q_token(args.index_q.stride[0]),
      q_head(args.index_q.stride[1]),
      keys(args.index_cache.template ptr<char>()),
      key_page(args.index_cache.stride[0]),
      key_token(args.index_cache.stride[1]),
      pages(args.index_cache.shape[0]),
      heads(static_cast<int>(args.index_q.shape[1])),
      batch(args.batch) {
  const auto size = size_of(args.index_cache.dtype);
  aligned = (reinterpret_cast<std::uintptr_t>(keys) | static_cast<std::uintptr_t>(key_page) * size |
             static_cast<std::uintptr_t>(key_token) * size) %
                16 ==
            0;
}

std::int64_t list_bytes(const IndexArgs& args) {
  return args.batch.num_actual_tokens * args.selection.shape[1] * args.selection.shape[2] *
         static_cast<std::int64_t>(sizeof(BlockKey));
}

/// Parts of each row's blocks: a few CTAs for every multiprocessor of a large device, none of them
/// with less than a few blocks, lists within the cap.
std::int64_t split_parts(const IndexArgs& args) {
  constexpr std::int64_t wanted_ctas = 2048, least_blocks = 8;
  const std::int64_t tokens = std::max<std::int64_t>(args.batch.num_actual_tokens, 1);
  const std::int64_t blocks = (args.batch.max_seq_len + page_size - 1) / page_size;
  const std::int64_t parts = std::min(wanted_ctas / tokens, blocks / least_blocks);
  constexpr std::size_t most = std::numeric_limits<std::int64_t>::max();
  const auto room = static_cast<std::int64_t>(std::min(args.workspace_cap, most)) -
                    static_cast<std::int64_t>(alignof(BlockKey));
  const std::int64_t fits = room / std::max<std::int64_t>(list_bytes(args), 1);
  return std::max<std::int64_t>(std::min(parts, fits), 1);
}

SelectParams::SelectParams(const IndexArgs& args)
    : IndexParams(args),
      rule(args.rule),
      lists(static_cast<int>(args.selection.shape[1])),
      topk(static_cast<int>(args.selection.shape[2])),
      selection(args.selection.ptr<std::int32_t>()),
      selection_token(args.selection.stride[0]),
      selection_list(args.selection.stride[1]),
      selection_slot(args.selection.stride[2]),
      partial(aligned_to<BlockKey>(alignof(BlockKey), args.workspace.data)) {
  parts = split_parts(args);
  items = args.batch.num_actual_tokens * parts;
}

ScoreParams::ScoreParams(const IndexScoresArgs& args)
    : IndexParams(args),
      scores(args.scores.ptr<float>()),
      score_head(args.scores.stride[0]),
      score_block(args.scores.stride[1]),
      score_token(args.scores.stride[2]),
      blocks(args.scores.shape[1]) {
  parts = (blocks + score_part - 1) / score_part;
  items = args.batch.num_actual_tokens * parts;
}

/// Calls body(key type, padded heads) as integral constants.
template <class Body>
void with_kinds(DType keys, int heads, Body body) {
  using bf16 = std::integral_constant<DType, DType::bf16>;
  using e4m3 = std::integral_constant<DType, DType::e4m3>;
  using few = std::integral_constant<int, 4>;
  using many = std::integral_constant<int, max_index_heads>;
  if (keys == DType::bf16) {
    heads <= 4 ? body(bf16{}, few{}) : body(bf16{}, many{});
  } else {
    heads <= 4 ? body(e4m3{}, few{}) : body(e4m3{}, many{});
  }
}

}  // namespace

std::size_t workspace_size(const IndexArgs& args) {
  const std::int64_t parts = split_parts(args);
  if (parts == 1) return 0;
  return static_cast<std::size_t>(parts * list_bytes(args)) + alignof(BlockKey);
}

void index_blocks(const IndexArgs& args) {
  SelectParams params(args);
  with_kinds(args.index_cache.dtype, params.heads, [&](auto type, auto rows) {
    launch("index_blocks", select_kernel<type.value, rows.value>, params.items, list_threads,
           args.stream, params);
  });
  if (params.parts == 1) return;
  params.items = args.batch.num_actual_tokens * params.lists;
  launch("index_blocks", merge_lists_kernel, params.items, list_threads, args.stream, params);
}

void index_scores(const IndexScoresArgs& args) {
  const ScoreParams params(args);
  with_kinds(args.index_cache.dtype, params.heads, [&](auto type, auto rows) {
    launch("index_scores", score_kernel<type.value, rows.value>, params.items, list_threads,
           args.stream, params);
  });
}

}  // namespace msa::cuda::portable
