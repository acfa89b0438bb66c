// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/index/index.h"

#include <algorithm>

#include "common/step.h"
#include "cuda/common/tensor_map.h"
#include "cuda/common/workspace.h"
#include "cuda/sm90/common/arithmetic.h"
#include "cuda/sm90/common/rows.h"
#include "cuda/sm90/index/launch.h"
#include "cuda/sm90/index/plan.h"

namespace msa::cuda::sm90::index {
namespace {

constexpr std::int64_t score_bytes = sizeof(float);
/// Of the workspace and of a row of scores in it.
constexpr std::int64_t alignment = 16;

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
  p.q = a.index_q.template ptr<char>();
  p.q_type = a.index_q.dtype;
  p.q_token = step_bytes(a.index_q, 0);
  p.q_head = step_bytes(a.index_q, 1);
  p.heads = static_cast<int>(a.index_q.shape[1]);
  p.head_factor = row_factor(p.heads);
  p.q_aligned = aligned_rows(a.index_q);
  p.batch = BatchView(a.batch);
  p.pages = a.index_cache.shape[0];
  p.tile_tokens_log2 = tile_tokens_log2(p.heads);
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

/// Scores of the workspace: a row of every head's blocks for each token of a window.
struct Layout {
  explicit Layout(const IndexArgs& a)
      : blocks(pages_of(a.batch.max_seq_len)),
        row((blocks * score_bytes + alignment - 1) / alignment * alignment),
        token(row * a.index_q.shape[1]) {
    const std::int64_t topk = a.selection.shape[2];
    if (blocks <= topk) return;  // every list has every block
    const auto most = static_cast<std::size_t>(max_bytes);
    const std::int64_t room =
        static_cast<std::int64_t>(std::min(a.workspace_cap, most)) - alignment;
    const std::int64_t fitting = std::max<std::int64_t>(room, 0) / token;
    const std::int64_t tile = std::int64_t{1}
                              << tile_tokens_log2(static_cast<int>(a.index_q.shape[1]));
    const std::int64_t decoded = a.batch.num_decode_tokens();
    const std::int64_t all = a.batch.num_actual_tokens;
    // A window has whole requests of decode rows, and room for a whole tile of others.
    const std::int64_t least = std::max(decoded > 0 ? a.batch.decode_query_len : 1,
                                        decoded < all ? std::min(tile, all) : 1);
    if (fitting < least) {
      keeps_lists = true;
      return;
    }
    tokens = std::min(fitting, all);
  }

  std::size_t bytes() const {
    return tokens == 0 ? 0 : static_cast<std::size_t>(tokens * token + alignment);
  }

  static constexpr std::int64_t max_bytes = std::int64_t{1} << 62;

  std::int64_t blocks;
  std::int64_t row, token;   // bytes
  std::int64_t tokens = 0;   // of a window; 0: no scores are kept
  bool keeps_lists = false;  // there is no room for scores
};

ListsView lists_view(const Tensor& selection) {
  return {selection.ptr<std::int32_t>(),
          selection.stride[0],
          selection.stride[1],
          selection.stride[2],
          static_cast<int>(selection.shape[1]),
          static_cast<int>(selection.shape[2])};
}

/// The call's rows in windows of at most `most` tokens: body(window).
template <class Body>
void for_windows(const BatchMetadata& batch, std::int64_t most, Body body) {
  const std::int64_t decoded = batch.num_decode_tokens(), m = batch.decode_query_len;
  const std::int64_t step = decoded > 0 ? most / m * m : most;
  for (std::int64_t t = 0; t < decoded; t += step) {
    body(Window{t, std::min(step, decoded - t), true});
  }
  for (std::int64_t t = decoded; t < batch.num_actual_tokens; t += most) {
    body(Window{t, std::min(most, batch.num_actual_tokens - t), false});
  }
}

}  // namespace

Reasons reasons(const ConstTensor& index_cache) {
  return tensor_map_reasons("index_cache", as_tiles(index_cache));
}

std::size_t workspace_size(const IndexArgs& args) { return Layout(args).bytes(); }

void index_blocks(const IndexArgs& args) {
  const Layout layout(args);
  const Origin origin = {"index_blocks", args.index_q.device.index, args.stream};
  ScoreParams p = common_params(origin.op, args);
  const ListsView selection = lists_view(args.selection);
  p.skip = selection.topk;
  p.rule = args.rule;
  p.selection = selection;
  if (layout.keeps_lists) {
    p.window = {0, args.batch.num_actual_tokens, false};
    return launch_scores(args, p, Output::lists, origin);
  }
  p.scores = {layout.tokens == 0 ? nullptr : aligned_to<float>(alignment, args.workspace.data),
              layout.token / score_bytes, layout.row / score_bytes, 1, layout.blocks};
  SelectParams s{};
  s.scores = p.scores;
  s.heads = p.heads;
  s.rule = args.rule;
  s.batch = p.batch;
  s.after_scores = layout.tokens > 0;
  const std::int64_t most = layout.tokens == 0 ? args.batch.num_actual_tokens : layout.tokens;
  for_windows(args.batch, most, [&](const Window& window) {
    if (layout.tokens > 0) {
      p.window = window;
      launch_scores(args, p, Output::scores, origin);
    }
    s.window = window;
    s.selection = selection;
    s.selection.data += window.first_token * selection.token;
    launch_select(s, origin);
  });
}

void index_scores(const IndexScoresArgs& args) {
  const Origin origin = {"index_scores", args.index_q.device.index, args.stream};
  ScoreParams p = common_params(origin.op, args);
  const ScoreView scores = {args.scores.ptr<float>(), args.scores.stride[2], args.scores.stride[0],
                            args.scores.stride[1], args.scores.shape[1]};
  if (scores.blocks == 0) return;
  for_windows(args.batch, args.batch.num_actual_tokens, [&](const Window& window) {
    p.window = window;
    p.scores = scores;
    p.scores.data += window.first_token * scores.token;
    launch_fill(p, origin);
    launch_scores(args, p, Output::scores, origin);
  });
}

void select_blocks(const SelectArgs& args) {
  SelectParams s{};
  s.scores = {const_cast<float*>(args.scores.ptr<float>()), args.scores.stride[2],
              args.scores.stride[0], args.scores.stride[1], args.scores.shape[1]};
  s.heads = static_cast<int>(args.scores.shape[0]);
  s.rule = args.rule;
  s.selection = lists_view(args.selection);
  s.valid_blocks = args.valid_blocks.ptr<std::int32_t>();
  s.window = {0, args.num_tokens, false};
  launch_select(s, {"select_blocks", args.scores.device.index, args.stream});
}

}  // namespace msa::cuda::sm90::index
