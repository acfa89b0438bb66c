// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "api/dispatch.h"
#include "serving/forward.h"

namespace msa {
namespace {

constexpr const char* call_name = "Indexer::forward";
constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

IndexArgs index_args(Checker& check, const Indexer::Config& config, const SparseMetadata& metadata,
                     const LayerContext& layer, const ConstTensor& index_q,
                     const ConstTensor& index_cache, const ConstTensor& index_block_table,
                     const ForwardContext& context) {
  check.show_as("selection", "topk_indices");
  check.show_as("block_table", "index_block_table");
  const std::int64_t tokens = metadata.batch.num_actual_tokens;
  IndexArgs args;
  args.index_q =
      view_by_head(check, "index_q", index_q,
                   {{DType::bf16, DType::f16, DType::e4m3}, tokens, "Hi", config.num_index_heads});
  const std::int64_t lists = config.rule.reduce_heads ? 1 : config.num_index_heads;
  const std::size_t failures = check.count();
  check.tensor("selection", layer.topk_indices,
               {.dtypes = {DType::i32},
                .extents = {Extent::at_least("T", tokens), Extent::exactly("Hs", lists),
                            Extent::exactly("topk", config.topk)},
                .output = true,
                .touched = tokens > 0});
  if (check.count() > failures) check.settle("selection");
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
    Checker check(call_name);
    index_blocks(check, index_args(check, config_, *metadata, layer, index_q, index_cache,
                                   index_block_table, context));
  }
}

std::size_t Indexer::workspace_size(const LayerContext& layer, const ConstTensor& index_q,
                                    const ConstTensor& index_cache,
                                    const ConstTensor& index_block_table,
                                    const ForwardContext& context) const {
  const SparseMetadata* metadata = find_metadata(call_name, layer, context);
  if (metadata == nullptr) return 0;
  Checker check(call_name, Scope::shapes);
  return msa::workspace_size(check, index_args(check, config_, *metadata, layer, index_q,
                                               index_cache, index_block_table, context));
}

}  // namespace msa
