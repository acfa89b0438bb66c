// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs.h"

/// \file
/// The cells of prefill_bench and what each computes on (docs/workloads.md).

namespace msa::bench {

/// How much the selections of neighbouring tokens agree: the share of blocks that a token keeps of
/// the one before, or data/real_selection.npy.
enum class Locality { high, middle, none, real };
const char* name(Locality locality);

/// `requests` alike, each with `queries` tokens behind `context` ones.
struct PrefillShape {
  std::int64_t hq, hkv, queries, context;
  Locality locality;
  DType kv;
  std::int64_t requests = 1;
  KVLayout layout = KVLayout::LBHNC;
  Variant variant = Variant::usual;

  std::int64_t tokens() const { return requests * queries; }
};
std::string shard_of(const PrefillShape& shape);
/// "bf16 64/4 8192 @ 24576 0.97", then what is not usual.
std::string text_of(const PrefillShape& shape);

/// Every cell with a cache of type `kv`.
std::vector<PrefillShape> prefill_grid(DType kv);

struct PrefillRows {
  std::vector<std::int32_t> ids;       // [tokens, hkv, 16]
  std::vector<std::int32_t> lengths;   // [requests]
  std::vector<std::int32_t> contexts;  // [requests]
  std::vector<std::int32_t> begins;    // [requests + 1]
  std::int64_t columns;                // of the page table that lengths may reach
};
/// `real` may be null where the shape's selections are not the file's.
PrefillRows prefill_inputs(const PrefillShape& shape, const RealSelection* real);

/// Columns of the page table that the call gets.
std::int64_t prefill_table_width(const PrefillShape& shape, const PrefillRows& rows);
/// Table of the `set`-th call: the `set`-th shuffle of the pool's pages, −1 past rows.columns.
std::vector<std::int32_t> prefill_table(const PrefillShape& shape, const PrefillRows& rows,
                                        std::int64_t pages, int set);

/// 4 · Hq · 128 for every visible selected key of a token's head.
double useful_flops(const PrefillShape& shape, const PrefillRows& rows);

/// Distinct blocks of `n` neighbouring tokens of a request and head, on average.
double mean_distinct(const PrefillShape& shape, const PrefillRows& rows, std::int64_t n);

}  // namespace msa::bench
