// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs.h"

/// \file
/// The cells of index_bench and what each computes on (docs/workloads.md).

namespace msa::bench {

/// What a score is made of; `exact` says how fp8 meets fp8.
struct Products {
  DType keys, q;
  bool exact = false;
};
/// "bf16", "e4m3", "e4m3 exact" or "e4m3 q bf16".
std::string name(const Products& products);

/// How long the requests of a batch are: all as `context` says, or one of them so and the others
/// of 4,096 keys.
enum class Lengths { alike, skewed };
const char* name(Lengths lengths);

/// `batch` requests. Decode: `m` rows each, `context` keys, these rows' included. Prefill: m is 0,
/// `tokens` rows each behind `context` keys.
struct IndexShape {
  Products products;
  std::int64_t heads, batch, m, tokens, context;
  Lengths lengths = Lengths::alike;
  Variant variant = Variant::usual;

  bool prefill() const { return m == 0; }
  std::int64_t queries() const { return prefill() ? tokens : m; }
};
/// "e4m3 q bf16 4 heads m 1 B 16 @ 131072", "bf16 4 heads 64 x 128 @ 32640", then what is not
/// usual.
std::string text_of(const IndexShape& shape);

/// Every cell with index keys of type `keys`, bf16 or e4m3.
std::vector<IndexShape> index_grid(DType keys);

/// Keys of each request, its queries included.
std::vector<std::int32_t> index_lengths(const IndexShape& shape);

/// Index pages that a call reads, and pages of its type in the pool.
std::int64_t index_pages(const IndexShape& shape);
std::int64_t index_pool_pages(const IndexShape& shape);
/// Calls of a graph: keys of 256 MB at least, five times an H200's L2, where the pool has as many
/// pages; no page twice.
int index_calls(const IndexShape& shape);

/// Columns of the page table that a call gets.
std::int64_t index_table_width(const IndexShape& shape);
/// Tables [batch, width] of a graph's calls, filled one after the other from one shuffle of the
/// pool's pages; −1 past a request's keys.
std::vector<std::vector<std::int32_t>> index_tables(const IndexShape& shape);

/// Bytes: visible keys, those of a request once. Operations: 2 · 128 a visible key, row and head.
/// Every row of the grid sees more blocks than it chooses, hence must be scored.
Work index_work(const IndexShape& shape);
/// Microseconds that the targets allow a decode call (bench/targets.json), where pages of its
/// type's size are gathered at `tbps`.
double index_rule_us(const IndexShape& shape, const Work& work, double tbps);

}  // namespace msa::bench
