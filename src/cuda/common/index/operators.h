// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/step.h"
#include "cuda/common/arithmetic.h"
#include "cuda/common/index/launch.h"
#include "cuda/common/index/plan.h"
#include "cuda/common/rows.h"
#include "cuda/common/workspace.h"
#include "msa/index.h"

/// \file
/// The indexer's operators but for the score kernel, which each backend has its own of:
/// index_blocks scores a window of rows at a time into the workspace and selects from there.

namespace msa::cuda {

inline constexpr std::int64_t score_bytes = sizeof(float);
/// Of the workspace and of a row of scores in it.
inline constexpr std::int64_t score_alignment = 16;

/// Scores of the workspace: a row of every head's blocks for each token of a window.
struct ScoreLayout {
  explicit ScoreLayout(const IndexArgs& a)
      : blocks(pages_of(a.batch.max_seq_len)),
        row((blocks * score_bytes + score_alignment - 1) / score_alignment * score_alignment),
        token(row * a.index_q.shape[1]) {
    const std::int64_t topk = a.selection.shape[2];
    if (blocks <= topk) return;  // every list has every block
    const auto most = static_cast<std::size_t>(max_bytes);
    const std::int64_t room =
        static_cast<std::int64_t>(std::min(a.workspace_cap, most)) - score_alignment;
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
    return tokens == 0 ? 0 : static_cast<std::size_t>(tokens * token + score_alignment);
  }

  /// In the workspace of a call.
  ScoreView scores(const Workspace& workspace) const {
    float* const data = tokens == 0 ? nullptr : aligned_to<float>(score_alignment, workspace.data);
    return {data, token / score_bytes, row / score_bytes, 1, blocks};
  }

  static constexpr std::int64_t max_bytes = std::int64_t{1} << 62;

  std::int64_t blocks;
  std::int64_t row, token;   // bytes
  std::int64_t tokens = 0;   // of a window; 0: no scores are kept
  bool keeps_lists = false;  // there is no room for scores
};

inline ListsView lists_view(const Tensor& selection) {
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
    const std::int64_t tokens = std::min(step, decoded - t);
    body(Window{t, tokens, t / m, tokens / m, true});
  }
  for (std::int64_t t = decoded; t < batch.num_actual_tokens; t += most) {
    const std::int64_t tokens = std::min(most, batch.num_actual_tokens - t);
    body(Window{t, tokens, batch.num_decodes, batch.num_prefills, false});
  }
}

/// What index_blocks and index_scores tell every score kernel.
template <class Args>
void fill_params(ScoreCall& p, const Args& a) {
  p.q = a.index_q.template ptr<char>();
  p.q_type = a.index_q.dtype;
  p.q_token = step_bytes(a.index_q, 0);
  p.q_head = step_bytes(a.index_q, 1);
  p.q_aligned = aligned_rows(a.index_q);
  p.heads = static_cast<int>(a.index_q.shape[1]);
  p.head_factor = row_factor(p.heads);
  p.batch = BatchView(a.batch);
  p.pages = a.index_cache.shape[0];
  p.tile_tokens_log2 = tile_tokens_log2(p.heads);
}

/// index_blocks by a backend's score kernel: launch(params, output).
template <class Params, class Launch>
void index_blocks_by(const IndexArgs& args, Params p, const Origin& origin, Launch launch) {
  const ScoreLayout layout(args);
  const ListsView selection = lists_view(args.selection);
  p.skip = selection.topk;
  p.rule = args.rule;
  p.selection = selection;
  if (layout.keeps_lists) {
    p.window.tokens = args.batch.num_actual_tokens;
    return launch(p, Output::lists);
  }
  p.scores = layout.scores(args.workspace);
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
      launch(p, Output::scores);
    }
    s.window = window;
    s.selection = selection;
    s.selection.data += window.first_token * selection.token;
    launch_select(s, origin);
  });
}

/// index_scores, likewise.
template <class Params, class Launch>
void index_scores_by(const IndexScoresArgs& args, Params p, const Origin& origin, Launch launch) {
  const ScoreView scores = {args.scores.ptr<float>(), args.scores.stride[2], args.scores.stride[0],
                            args.scores.stride[1], args.scores.shape[1]};
  if (scores.blocks == 0) return;
  for_windows(args.batch, args.batch.num_actual_tokens, [&](const Window& window) {
    p.window = window;
    p.scores = scores;
    p.scores.data += window.first_token * scores.token;
    launch_fill({p.scores, p.heads, p.batch, window}, origin);
    launch(p, Output::scores);
  });
}

inline void select_blocks_by_warps(const SelectArgs& args) {
  SelectParams s{};
  s.scores = {const_cast<float*>(args.scores.ptr<float>()), args.scores.stride[2],
              args.scores.stride[0], args.scores.stride[1], args.scores.shape[1]};
  s.heads = static_cast<int>(args.scores.shape[0]);
  s.rule = args.rule;
  s.selection = lists_view(args.selection);
  s.valid_blocks = args.valid_blocks.ptr<std::int32_t>();
  s.window.tokens = args.num_tokens;
  launch_select(s, {"select_blocks", args.scores.device.index, args.stream});
}

}  // namespace msa::cuda
