// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "msa/kv_cache.h"
#include "msa/types.h"

/// \file
/// The cells of decode_bench and what each computes on: integers that bench/peers/inputs.py makes
/// the same, bit for bit (docs/workloads.md).

namespace msa::bench {

/// Where a cell's selections come from.
enum class Source {
  grid,  // src/cli/io/generate.h
  real,  // data/real_selection.npy: m adjacent tokens of it a request, requests spread over the
         // file
};

/// What differs from the usual call of the same shape, and must not cost time.
enum class Variant { usual, wide_table, long_bound, large_pool };

struct Shape {
  std::int64_t hq, hkv, m, batch;
  DType kv;
  KVLayout layout = KVLayout::LBHNC;
  bool lse = false;
  Source source = Source::grid;
  Variant variant = Variant::usual;
};

const char* name(Source source);
const char* name(Variant variant);
/// "64/4".
std::string shard_of(const Shape& shape);

/// Every cell with a cache of type `kv`.
std::vector<Shape> decode_grid(DType kv);

/// Ids of data/real_selection.npy.
class RealSelection {
 public:
  /// \throws Error (io) naming the file.
  explicit RealSelection(const std::string& path);
  static constexpr std::int64_t tokens = 8192, heads = 4, first_position = 24576, blocks = 256;
  std::int32_t id(std::int64_t token, std::int64_t head, std::int64_t slot) const;

 private:
  std::vector<std::uint8_t> ids_;
};

/// Selection and lengths of a call.
struct Rows {
  std::vector<std::int32_t> ids;      // [batch · m, hkv, 16]
  std::vector<std::int32_t> lengths;  // [batch]
  std::int64_t columns;               // of the page table that lengths may reach
};
/// `real` may be null where the shape's source is the grid.
Rows decode_inputs(const Shape& shape, const RealSelection* real);

/// Columns of the page table that the call gets.
std::int64_t table_width(const Shape& shape, const Rows& rows);
/// Table of the `set`-th call [batch, table_width]: the `set`-th shuffle of the pool's pages, −1
/// past rows.columns.
std::vector<std::int32_t> decode_table(const Shape& shape, const Rows& rows, std::int64_t pages,
                                       int set);

/// Bytes of the pool that a cell's pages come from, and pages of its shape in it.
std::size_t pool_bytes(Variant variant);
std::int64_t pool_pages(const Shape& shape);

/// What makes values of about unit size of random bits, two bytes at a time: random mantissas and
/// signs, exponents around 0.
struct ValueMask {
  std::uint16_t keep, set;
};
ValueMask value_mask(DType type);
/// Such values as pairs of bytes.
std::vector<std::uint16_t> random_values(DType type, std::size_t count, std::uint64_t seed);

/// What a call must do at least.
struct Work {
  double bytes = 0;  // distinct (page, head) tiles, q and out
  double flops = 0;  // of (row, page) pairs, rows in groups of four that skip a page none chose
};
Work work_of(const Shape& shape, const Rows& rows);
/// Microseconds that the targets allow such a call (bench/targets.json).
double rule_us(const Shape& shape, const Work& work);

}  // namespace msa::bench
