// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/launch.h"
#include "cuda/portable/operators.h"
#include "cuda/portable/top_list.cuh"

/// \file
/// select_blocks: one CTA a row and list, a tile of 128 blocks at a time.

namespace msa::cuda::portable {
namespace {

struct ChooseParams {
  explicit ChooseParams(const SelectArgs& args)
      : scores(args.scores.ptr<float>()),
        heads(args.scores.shape[0]),
        blocks(args.scores.shape[1]),
        score_head(args.scores.stride[0]),
        score_block(args.scores.stride[1]),
        score_token(args.scores.stride[2]),
        valid_blocks(args.valid_blocks.ptr<std::int32_t>()),
        rule(args.rule),
        lists(args.selection.shape[1]),
        topk(static_cast<int>(args.selection.shape[2])),
        selection(args.selection.ptr<std::int32_t>()),
        selection_token(args.selection.stride[0]),
        selection_list(args.selection.stride[1]),
        selection_slot(args.selection.stride[2]),
        items(args.num_tokens * lists) {}

  const float* scores;  // [Hi, blocks, T]
  std::int64_t heads, blocks;
  std::int64_t score_head, score_block, score_token;
  const std::int32_t* valid_blocks;  // [T]
  SelectRule rule;
  std::int64_t lists;
  int topk;
  std::int32_t* selection;  // [T, Hs, topk]
  std::int64_t selection_token, selection_list, selection_slot;
  std::int64_t items;  // T · Hs
};

__device__ float score_of(const ChooseParams& p, std::int64_t token, std::int64_t list,
                          std::int64_t block) {
  const float* at = p.scores + block * p.score_block + token * p.score_token;
  if (!p.rule.reduce_heads) return at[list * p.score_head];
  float best = at[0];
  for (std::int64_t h = 1; h < p.heads; ++h) best = larger_score(best, at[h * p.score_head]);
  return best;
}

__global__ __launch_bounds__(list_threads) void choose_kernel(const ChooseParams p) {
  __shared__ TopList best;
  __shared__ TopListScratch scratch;
  for (std::int64_t item = blockIdx.x; item < p.items; item += gridDim.x) {
    const std::int64_t token = item / p.lists, list = item % p.lists;
    const std::int64_t wanted = p.valid_blocks[token];
    const RowOrder order(min(max(wanted, std::int64_t{0}), p.blocks), p.rule);
    best.clear();
    __syncthreads();
    for (std::int64_t tile = 0; tile < order.valid(); tile += list_threads) {
      const std::int64_t block = tile + threadIdx.x;
      BlockKey key = 0;
      if (block < order.valid()) key = order.key(block, score_of(p, token, list, block));
      best.add(key, p.topk, scratch);
    }
    best.write_ids(p.topk, p.selection + token * p.selection_token + list * p.selection_list,
                   p.selection_slot);
    __syncthreads();
  }
}

}  // namespace

void select_blocks(const SelectArgs& args) {
  const ChooseParams params(args);
  launch("select_blocks", choose_kernel, params.items, list_threads, args.stream, params);
}

}  // namespace msa::cuda::portable
