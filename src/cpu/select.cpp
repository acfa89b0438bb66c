// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/select.h"

#include <algorithm>

#include "cpu/operators.h"
#include "cpu/parallel.h"

namespace msa::cpu {
namespace {

/// Tokens of one task: a cache line of scores where tokens are adjacent.
constexpr std::int64_t tile_tokens = 16;

/// One list (or all heads, where they share one) of up to tile_tokens tokens.
class SelectTask {
 public:
  SelectTask(const SelectArgs& args, std::int64_t list, std::int64_t first)
      : args_(args),
        list_(list),
        first_(first),
        tokens_(std::min(tile_tokens, args.num_tokens - first)),
        topk_(args.selection.shape[2]) {}

  void run() {
    std::int64_t blocks = 0;
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const std::int64_t valid =
          args_.valid_blocks.ptr<std::int32_t>()[(first_ + t) * args_.valid_blocks.stride[0]];
      order_[t] = RowOrder(std::clamp<std::int64_t>(valid, 0, args_.scores.shape[1]), args_.rule);
      blocks = std::max(blocks, order_[t].valid());
      std::fill_n(best_[t], topk_, BlockKey{0});
    }
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t t = 0; t < tokens_; ++t) {
        if (b < order_[t].valid()) offer(best_[t], topk_, order_[t].key(b, score(b, t)));
      }
    }
    const Tensor& out = args_.selection;
    for (std::int64_t t = 0; t < tokens_; ++t) {
      auto* ids = out.ptr<std::int32_t>() + (first_ + t) * out.stride[0] + list_ * out.stride[1];
      write_ids(best_[t], topk_, ids, out.stride[2]);
    }
  }

 private:
  float score(std::int64_t block, std::int64_t token) const {
    const ConstTensor& s = args_.scores;
    const auto* at = s.ptr<float>() + block * s.stride[1] + (first_ + token) * s.stride[2];
    if (!args_.rule.reduce_heads) return at[list_ * s.stride[0]];
    float best = at[0];
    for (std::int64_t h = 1; h < s.shape[0]; ++h) best = larger_score(best, at[h * s.stride[0]]);
    return best;
  }

  const SelectArgs& args_;
  const std::int64_t list_;
  const std::int64_t first_;
  const std::int64_t tokens_;
  const std::int64_t topk_;
  RowOrder order_[tile_tokens];
  BlockKey best_[tile_tokens][max_topk];
};

}  // namespace

std::size_t workspace_size(const SelectArgs&) { return 0; }

void select_blocks(const SelectArgs& args) {
  const std::int64_t lists = args.selection.shape[1];
  const std::int64_t tiles = (args.num_tokens + tile_tokens - 1) / tile_tokens;
  parallel_for(lists * tiles, [&](std::int64_t task) {
    SelectTask(args, task % lists, task / lists * tile_tokens).run();
  });
}

}  // namespace msa::cpu
