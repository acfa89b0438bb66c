// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "inputs.h"

#include <algorithm>
#include <set>

#include "cli/io/generate.h"
#include "cli/io/npy.h"
#include "msa/error.h"

namespace msa::bench {
namespace {

constexpr std::int64_t topk = cli::generated_topk;
constexpr std::int64_t grid_keys = 16384 - 3;  // of every request; the time does not depend on it
constexpr std::int64_t grid_columns = 128;
constexpr std::int64_t wide_columns = 8192;  // a context of 1,048,576

Rows real_rows(const Shape& s, const RealSelection& real) {
  Rows rows{{}, {}, RealSelection::blocks};
  for (std::int64_t r = 0; r < s.batch; ++r) {
    const std::int64_t first = r * RealSelection::tokens / s.batch;
    rows.lengths.push_back(static_cast<std::int32_t>(RealSelection::first_position + first + s.m));
    for (std::int64_t row = 0; row < s.m; ++row) {
      for (std::int64_t h = 0; h < s.hkv; ++h) {
        // A shard with fewer heads meets all of the file's, one request after the other.
        const std::int64_t head = (r * s.hkv + h) % RealSelection::heads;
        for (std::int64_t slot = 0; slot < topk; ++slot) {
          rows.ids.push_back(real.id(first + row, head, slot));
        }
      }
    }
  }
  return rows;
}

/// Distinct blocks that rows [begin, end) of a request choose.
std::int64_t distinct(const Shape& s, const Rows& rows, std::int64_t request, std::int64_t head,
                      std::int64_t begin, std::int64_t end) {
  std::set<std::int32_t> blocks;
  for (std::int64_t row = request * s.m + begin; row < request * s.m + end; ++row) {
    const auto ids = rows.ids.begin() + (row * s.hkv + head) * topk;
    blocks.insert(ids, ids + topk);
  }
  blocks.erase(-1);
  return static_cast<std::int64_t>(blocks.size());
}

}  // namespace

const char* name(Source source) { return source == Source::grid ? "grid" : "real"; }

const char* name(Variant variant) {
  switch (variant) {
    case Variant::usual:
      return "usual";
    case Variant::wide_table:
      return "wide table";
    case Variant::long_bound:
      return "long bound";
    case Variant::large_pool:
      return "large pool";
  }
  return "";
}

std::string shard_of(const Shape& s) { return std::to_string(s.hq) + "/" + std::to_string(s.hkv); }

std::vector<Shape> decode_grid(DType kv) {
  std::vector<Shape> shapes;
  if (kv == DType::f16 || kv == DType::e5m2) {  // compared with bf16 and e4m3
    for (std::int64_t m : {1, 4}) {
      for (std::int64_t batch : {8, 64}) shapes.push_back({64, 4, m, batch, kv});
    }
    return shapes;
  }
  for (std::int64_t m : {1, 4, 8}) {
    for (std::int64_t batch : {1, 8, 32, 64, 128, 256}) {
      shapes.push_back({64, 4, m, batch, kv});
      shapes.push_back({16, 1, m, batch, kv});
      shapes.push_back({8, 1, m, batch, kv});
    }
  }
  shapes.push_back({64, 4, 1, 16, kv});
  for (std::int64_t m : {2, 3, 6, 16}) shapes.push_back({64, 4, m, 32, kv});
  for (std::int64_t m : {1, 4}) {
    for (std::int64_t batch : {8, 64}) {
      shapes.push_back({4, 1, m, batch, kv});
      shapes.push_back({64, 4, m, batch, kv, KVLayout::LBNHC});
      shapes.push_back({64, 4, m, batch, kv, KVLayout::LBHNC, true});
    }
    shapes.push_back({64, 4, m, 64, kv, KVLayout::LBHNC, false, Source::real});
    shapes.push_back({8, 1, m, 64, kv, KVLayout::LBHNC, false, Source::real});
  }
  for (Variant variant : {Variant::wide_table, Variant::long_bound, Variant::large_pool}) {
    for (std::int64_t batch : {1, 8, 64}) {
      shapes.push_back({64, 4, 1, batch, kv, KVLayout::LBHNC, false, Source::grid, variant});
    }
  }
  return shapes;
}

RealSelection::RealSelection(const std::string& path) {
  cli::ByteArray array = cli::read_npy(path);
  if (array.shape != std::vector<std::int64_t>{tokens, heads, topk}) {
    throw Error(ErrorCode::io, path + ": its shape is not [8192, 4, 16]");
  }
  ids_ = std::move(array.values);
}

std::int32_t RealSelection::id(std::int64_t token, std::int64_t head, std::int64_t slot) const {
  return ids_[static_cast<std::size_t>((token * heads + head) * topk + slot)];
}

Rows decode_inputs(const Shape& s, const RealSelection* real) {
  if (s.source == Source::real) return real_rows(s, *real);
  return {cli::decode_rows(s.batch, s.m, grid_keys, s.hkv, 1),
          std::vector<std::int32_t>(static_cast<std::size_t>(s.batch),
                                    static_cast<std::int32_t>(grid_keys)),
          grid_columns};
}

std::int64_t table_width(const Shape& s, const Rows& rows) {
  return s.variant == Variant::wide_table ? wide_columns : rows.columns;
}

std::vector<std::int32_t> decode_table(const Shape& s, const Rows& rows, std::int64_t pages,
                                       int set) {
  const std::uint64_t seed = 7 * static_cast<std::uint64_t>(set) + 1;
  const std::vector<std::int32_t> used = cli::table_rows(s.batch, rows.columns, pages, seed);
  const std::int64_t width = table_width(s, rows);
  std::vector<std::int32_t> table(static_cast<std::size_t>(s.batch * width), -1);
  for (std::int64_t r = 0; r < s.batch; ++r) {
    std::copy_n(used.begin() + r * rows.columns, rows.columns, table.begin() + r * width);
  }
  return table;
}

std::size_t pool_bytes(Variant variant) {
  return std::size_t{variant == Variant::large_pool ? 64U : 12U} << 30;
}

std::int64_t pool_pages(const Shape& s) {
  return static_cast<std::int64_t>(pool_bytes(s.variant)) /
         (s.hkv * page_size * 2 * head_dim * static_cast<std::int64_t>(size_of(s.kv)));
}

ValueMask value_mask(DType type) {
  return type == DType::bf16   ? ValueMask{0x80ff, 0x3f00}
         : type == DType::f16  ? ValueMask{0x87ff, 0x3800}
         : type == DType::e4m3 ? ValueMask{0x8f8f, 0x3030}
                               : ValueMask{0x8787, 0x3838};
}

std::vector<std::uint16_t> random_values(DType type, std::size_t count, std::uint64_t seed) {
  const ValueMask mask = value_mask(type);
  cli::SplitMix64 random(seed);
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& x : values) {
    x = static_cast<std::uint16_t>((random.next() & mask.keep) | mask.set);
  }
  return values;
}

Work work_of(const Shape& s, const Rows& rows) {
  std::int64_t tiles = 0, pairs = 0;
  for (std::int64_t r = 0; r < s.batch; ++r) {
    for (std::int64_t h = 0; h < s.hkv; ++h) {
      tiles += distinct(s, rows, r, h, 0, s.m);
      for (std::int64_t row = 0; row < s.m; row += 4) {
        const std::int64_t end = std::min(row + 4, s.m);
        pairs += distinct(s, rows, r, h, row, end) * (end - row);
      }
    }
  }
  const std::int64_t group = s.hq / s.hkv;
  const double tile = page_size * 2 * head_dim * static_cast<double>(size_of(s.kv));
  const double elements = static_cast<double>(s.batch * s.m * s.hq) * head_dim;
  return {static_cast<double>(tiles) * tile + 2 * elements * 2,
          65536.0 * static_cast<double>(group * pairs)};
}

double rule_us(const Shape& s, const Work& work) {
  const double rate = size_of(s.kv) == 2 ? 4.55e6 : 4.42e6;  // bytes a microsecond
  return 3.8 + std::max(1.03 * work.bytes / rate, work.flops / 600e6);
}

}  // namespace msa::bench
