// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "serving/forward.h"

namespace msa {
namespace {

constexpr const char* call_name = "Indexer::forward";
constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

IndexArgs index_args(const Indexer::Config& config, const SparseMetadata& metadata,
                     const LayerContext& layer, const ConstTensor& index_q,
                     const ConstTensor& index_cache, const ConstTensor& index_block_table,
                     const ForwardContext& context) {
  Checker check(call_name);
  IndexArgs args;
  args.index_q = view_by_head(check, "index_q", index_q, config.num_index_heads);
  const ConstTensor& buffer = layer.topk_indices;
  const std::int64_t lists = config.rule.reduce_heads ? 1 : config.num_index_heads;
  check.require(buffer.rank == 3 && buffer.shape[1] == lists && buffer.shape[2] == config.topk,
                "topk_indices",
                cat("has ", describe(buffer), "; expected [rows, ", lists, ", ", config.topk, "]"));
  check.raise();
  args.index_cache = index_cache;
  args.batch = metadata.batch;
  args.batch.block_table = index_block_table;
  args.selection = layer.topk_indices;
  args.rule = config.rule;
  args.exact = config.exact;
  args.workspace_cap = context.workspace_cap;
  args.workspace = context.workspace;
  args.stream = context.stream;
  return args;
}

}  // namespace

Indexer::Indexer(const Config& config) : config_(config) {
  Checker check("Indexer");
  check.range("num_index_heads", config.num_index_heads, 1, max_index_heads);
  check.range("topk", config.topk, 1, max_topk);
  check.range("rule.init_blocks", config.rule.init_blocks, 0, max_int32);
  check.range("rule.local_blocks", config.rule.local_blocks, 0, max_int32);
  check.raise();
}

void Indexer::forward(const LayerContext& layer, const ConstTensor& index_q,
                      const ConstTensor& index_cache, const ConstTensor& index_block_table,
                      const ForwardContext& context) const {
  if (const SparseMetadata* metadata = find_metadata(call_name, layer, context)) {
    index_blocks(
        index_args(config_, *metadata, layer, index_q, index_cache, index_block_table, context));
  }
}

std::size_t Indexer::workspace_size(const LayerContext& layer, const ConstTensor& index_q,
                                    const ConstTensor& index_cache,
                                    const ConstTensor& index_block_table,
                                    const ForwardContext& context) const {
  const SparseMetadata* metadata = find_metadata(call_name, layer, context);
  if (metadata == nullptr) return 0;
  return msa::workspace_size(
      index_args(config_, *metadata, layer, index_q, index_cache, index_block_table, context));
}

}  // namespace msa
