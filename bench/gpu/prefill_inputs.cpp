// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "prefill_inputs.h"

#include <algorithm>
#include <set>

#include "cli/io/generate.h"

namespace msa::bench {
namespace {

constexpr std::int64_t topk = cli::generated_topk;
constexpr std::int64_t wide_columns = 8192;  // a context of 1,048,576
constexpr std::uint64_t grid_seed = 11;

std::int64_t keep_permille(Locality locality) {
  return locality == Locality::high ? 970 : locality == Locality::middle ? 900 : 0;
}

/// Tokens of the file from its first one on; a shard of one head meets one of the file's.
std::vector<std::int32_t> real_rows(const PrefillShape& s, const RealSelection& real) {
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < s.queries; ++token) {
    for (std::int64_t head = 0; head < s.hkv; ++head) {
      for (std::int64_t slot = 0; slot < topk; ++slot) ids.push_back(real.id(token, head, slot));
    }
  }
  return ids;
}

}  // namespace

const char* name(Locality locality) {
  switch (locality) {
    case Locality::high:
      return "0.97";
    case Locality::middle:
      return "0.90";
    case Locality::none:
      return "0.0";
    case Locality::real:
      return "real";
  }
  return "";
}

std::string shard_of(const PrefillShape& s) {
  return std::to_string(s.hq) + "/" + std::to_string(s.hkv);
}

std::string text_of(const PrefillShape& s) {
  std::string text = std::string(name(s.kv)) + " " + shard_of(s) + " ";
  if (s.requests > 1) text += std::to_string(s.requests) + " x ";
  text += std::to_string(s.queries) + " @ " + std::to_string(s.context) + " " + name(s.locality);
  if (s.layout != KVLayout::LBHNC) text += std::string(" ") + name(s.layout);
  if (s.variant != Variant::usual) text += std::string(" ") + name(s.variant);
  return text;
}

std::vector<PrefillShape> prefill_grid(DType kv) {
  constexpr std::int64_t near = 24576, far = 122880;
  std::vector<PrefillShape> shapes;
  if (kv == DType::f16 || kv == DType::e5m2) {  // compared with bf16 and e4m3
    for (Locality l : {Locality::high, Locality::middle, Locality::none, Locality::real}) {
      shapes.push_back({64, 4, 8192, near, l, kv});
    }
    return shapes;
  }
  for (const auto& [hq, hkv] : {std::pair{64, 4}, {16, 1}, {8, 1}}) {
    for (Locality l : {Locality::high, Locality::middle, Locality::none}) {
      for (std::int64_t context : {std::int64_t{0}, near, far}) {
        shapes.push_back({hq, hkv, 8192, context, l, kv});
      }
    }
    shapes.push_back({hq, hkv, 8192, near, Locality::real, kv});
  }
  for (std::int64_t context : {near, far}) {
    for (Locality l : {Locality::high, Locality::middle, Locality::none}) {
      shapes.push_back({64, 4, 2048, context, l, kv});
    }
  }
  shapes.push_back({64, 4, 256, 131072 - 256, Locality::high, kv});
  shapes.push_back({64, 4, 128, 32768 - 128, Locality::high, kv, 64});
  shapes.push_back({64, 4, 8192, near, Locality::high, kv, 1, KVLayout::LBNHC});
  shapes.push_back(
      {64, 4, 8192, near, Locality::high, kv, 1, KVLayout::LBHNC, Variant::wide_table});
  return shapes;
}

PrefillRows prefill_inputs(const PrefillShape& s, const RealSelection* real) {
  PrefillRows rows{};
  rows.columns = (s.context + s.queries + page_size - 1) / page_size;
  for (std::int64_t r = 0; r < s.requests; ++r) {
    const std::vector<std::int32_t> ids =
        s.locality == Locality::real
            ? real_rows(s, *real)
            : cli::selection_rows(s.queries, s.context, s.hkv, keep_permille(s.locality),
                                  grid_seed + static_cast<std::uint64_t>(r));
    rows.ids.insert(rows.ids.end(), ids.begin(), ids.end());
    rows.lengths.push_back(static_cast<std::int32_t>(s.context + s.queries));
    rows.contexts.push_back(static_cast<std::int32_t>(s.context));
    rows.begins.push_back(static_cast<std::int32_t>(r * s.queries));
  }
  rows.begins.push_back(static_cast<std::int32_t>(s.tokens()));
  return rows;
}

std::int64_t prefill_table_width(const PrefillShape& s, const PrefillRows& rows) {
  return s.variant == Variant::wide_table ? wide_columns : rows.columns;
}

std::vector<std::int32_t> prefill_table(const PrefillShape& s, const PrefillRows& rows,
                                        std::int64_t pages, int set) {
  const std::uint64_t seed = 7 * static_cast<std::uint64_t>(set) + 1;
  const std::vector<std::int32_t> used = cli::table_rows(s.requests, rows.columns, pages, seed);
  const std::int64_t width = prefill_table_width(s, rows);
  std::vector<std::int32_t> table(static_cast<std::size_t>(s.requests * width), -1);
  for (std::int64_t r = 0; r < s.requests; ++r) {
    std::copy_n(used.begin() + r * rows.columns, rows.columns, table.begin() + r * width);
  }
  return table;
}

double useful_flops(const PrefillShape& s, const PrefillRows& rows) {
  std::int64_t keys = 0;
  for (std::int64_t token = 0; token < s.tokens(); ++token) {
    const std::int64_t visible = s.context + token % s.queries + 1;
    for (std::int64_t i = token * s.hkv * topk; i < (token + 1) * s.hkv * topk; ++i) {
      const std::int64_t id = rows.ids[static_cast<std::size_t>(i)];
      if (id >= 0) keys += std::clamp<std::int64_t>(visible - id * page_size, 0, page_size);
    }
  }
  return 4.0 * head_dim * static_cast<double>(s.hq / s.hkv * keys);
}

double mean_distinct(const PrefillShape& s, const PrefillRows& rows, std::int64_t n) {
  std::int64_t blocks = 0, sets = 0;
  for (std::int64_t token = 0; token < s.tokens(); token += n) {
    for (std::int64_t head = 0; head < s.hkv; ++head, ++sets) {
      std::set<std::int32_t> chosen;
      for (std::int64_t t = token; t < std::min(token + n, s.tokens()); ++t) {
        const auto ids = rows.ids.begin() + (t * s.hkv + head) * topk;
        chosen.insert(ids, ids + topk);
      }
      chosen.erase(-1);
      blocks += static_cast<std::int64_t>(chosen.size());
    }
  }
  return static_cast<double>(blocks) / static_cast<double>(sets);
}

}  // namespace msa::bench
