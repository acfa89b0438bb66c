// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/index/index.h"

#include "cuda/common/index/operators.h"
#include "cuda/common/tensor_map.h"
#include "cuda/sm90/index/launch.h"

namespace msa::cuda::sm90::index {
namespace {

/// [pages, 128, 128] as a cache of one head.
ConstTensor as_tiles(const ConstTensor& keys) {
  ConstTensor t = keys;
  t.rank = 4;
  t.shape = {keys.shape[0], 1, keys.shape[1], keys.shape[2]};
  t.stride = {keys.stride[0], keys.stride[0], keys.stride[1], keys.stride[2]};
  return t;
}

/// What index_blocks and index_scores share.
template <class Args>
ScoreParams common_params(const char* op, const Args& a) {
  ScoreParams p{};
  p.keys = tile_map(op, as_tiles(a.index_cache));
  fill_params(p, a);
  return p;
}

/// The kernel of a call's types.
template <class Args>
void launch_scores(const Args& a, const ScoreParams& p, Output output, const Origin& origin) {
  if (a.index_cache.dtype == DType::bf16) {
    return p.q_type == DType::f16 ? launch_split(p, output, origin)
                                  : launch_bf16(p, output, origin);
  }
  if (p.q_type == DType::e4m3 && !a.exact) return launch_e4m3(p, output, origin);
  launch_widened(p, output, origin);
}

}  // namespace

Reasons reasons(const ConstTensor& index_cache) {
  return tensor_map_reasons("index_cache", as_tiles(index_cache));
}

std::size_t workspace_size(const IndexArgs& args) { return ScoreLayout(args).bytes(); }

void index_blocks(const IndexArgs& args) {
  const Origin origin = {"index_blocks", args.index_q.device.index, args.stream};
  index_blocks_by(
      args, common_params(origin.op, args), origin,
      [&](const ScoreParams& p, Output output) { launch_scores(args, p, output, origin); });
}

void index_scores(const IndexScoresArgs& args) {
  const Origin origin = {"index_scores", args.index_q.device.index, args.stream};
  index_scores_by(
      args, common_params(origin.op, args), origin,
      [&](const ScoreParams& p, Output output) { launch_scores(args, p, output, origin); });
}

void select_blocks(const SelectArgs& args) { select_blocks_by_warps(args); }

}  // namespace msa::cuda::sm90::index
