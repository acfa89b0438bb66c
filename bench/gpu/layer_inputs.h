// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "msa/types.h"

/// \file
/// The cells of layer_bench and what each computes on (docs/workloads.md).

namespace msa::bench {

enum class LayerOp {
  write,       // write_cache of `tokens` rows
  copy_main,   // copy_pages of `tokens` pages of the main cache
  copy_index,  // the same of the index cache
  step,        // layer_step of `tokens` decode requests of `context` keys
};
/// "write", "copy_pages", "copy_pages index", "layer_step".
const char* name(LayerOp op);

/// One index head a KV head, as in MiniMax-M3.
struct LayerShape {
  LayerOp op;
  std::int64_t hq, hkv;
  DType kv, index;  // of the caches; q is bf16
  std::int64_t tokens;
  std::int64_t context = 0;

  bool whole() const { return op == LayerOp::step; }
  std::int64_t heads() const { return hkv; }
  /// Elements of a row of qkv.
  std::int64_t row() const { return (hq + 3 * hkv + 1) * head_dim; }
  /// Columns of a request's page table.
  std::int64_t blocks() const { return (context + page_size - 1) / page_size; }
  std::int64_t rotated_positions() const { return whole() ? context : 4096; }
};
/// "write 64/4 bf16, 2048 tokens", "layer_step 64/4 e4m3 B 64 @ 131072".
std::string text_of(const LayerShape& shape);
std::string shard_of(const LayerShape& shape);

/// Every cell with a main cache of type `kv`, bf16 or e4m3; the index cache has the same type.
std::vector<LayerShape> layer_grid(DType kv);

/// Pages of the caches in their halves of the pool, 12 GB each.
std::int64_t main_pool_pages(const LayerShape& shape);
std::int64_t index_pool_pages(const LayerShape& shape);

/// Calls of a graph that find nothing of each other's input in L2.
int layer_calls(const LayerShape& shape);

struct LayerTables {
  std::vector<std::int32_t> main, index;         // [tokens, blocks]; empty without a context
  std::vector<std::int64_t> slots, index_slots;  // [tokens]
};
/// Of a graph's call. No two requests of a call write the same page, nor two calls the same index
/// page; main pages are as many as the pool has, of which a call reads a few at random.
LayerTables layer_tables(const LayerShape& shape, int call);
/// [tokens]: of a step the last key's, of a write any.
std::vector<std::int64_t> layer_positions(const LayerShape& shape);
/// Pairs [tokens, 2] of a call: no page is twice in them.
std::vector<std::int64_t> copied_pairs(const LayerShape& shape, int call);

/// Bytes that must move: of a write its rows, once in and once out in the outputs' types; of a copy
/// its pages twice; of a step the visible index keys, and the chosen pages if no two heads or
/// requests choose the same.
double layer_bytes(const LayerShape& shape);

}  // namespace msa::bench
