// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/requests.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cli/io/generate.h"
#include "cli/io/npy.h"
#include "common/numeric.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

double bytes_of(DType type) { return static_cast<double>(size_of(type)); }

DType index_type(const Workload& w) { return is_fp8(w.kv) ? DType::e4m3 : DType::bf16; }

std::int64_t blocks_of(std::int64_t tokens) { return (tokens + page_size - 1) / page_size; }

/// The first rows of the workload's file; KV head h takes the file's head h mod its heads.
/// \throws Error (io) where the file holds other arrays, fewer rows or other ids than it needs.
std::vector<std::int32_t> read_selection(const Workload& w) {
  const ByteArray file = read_npy(w.selection);
  if (file.shape.size() != 3 || file.shape[0] < w.tokens || file.shape[1] < 1 ||
      file.shape[2] != generated_topk) {
    throw Error(ErrorCode::io,
                fmt::format("{}: has shape [{}]; needed: [{} or more, heads, {}]", w.selection,
                            fmt::join(file.shape, ", "), w.tokens, generated_topk));
  }
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < w.tokens; ++row) {
    const std::int64_t own = (w.context + row) / page_size;
    for (std::int64_t h = 0; h < w.hkv; ++h) {
      const std::int64_t first = (row * file.shape[1] + h % file.shape[1]) * generated_topk;
      for (std::int64_t i = first; i < first + generated_topk; ++i) {
        const std::int32_t id = file.values[static_cast<std::size_t>(i)];
        if (id > own) {
          throw Error(ErrorCode::io,
                      fmt::format("{}: row {} chooses block {}; allowed for a 'context' of {}: 0 "
                                  "to {}",
                                  w.selection, row, id, w.context, own));
        }
        ids.push_back(id);
      }
    }
  }
  return ids;
}

}  // namespace

void Pools::fill(PlacedBuffer& memory, std::optional<DType>& current, DType type) {
  if (current == type) return;
  fill_normal(type, memory, place, static_cast<std::int64_t>(memory.bytes() / size_of(type)), 1);
  current = type;
}

KVCache main_cache(const Workload& w, const Pools& pools) {
  const bool interleaved =
      w.layout == KVLayout::BLHNC || w.layout == KVLayout::BLNHC || w.layout == KVLayout::BHLNC;
  KVCacheShape shape{.layers = interleaved ? 4 : 1, .pages = 1, .heads = w.hkv};
  const auto elements = static_cast<std::int64_t>(pools.main.bytes() / size_of(w.kv));
  shape.pages = elements / shape.numel();
  return kv_layer_view(pools.main.data(), w.kv, w.layout, shape, interleaved ? 1 : 0,
                       pools.place.device());
}

Tensor index_cache(const Workload& w, const Pools& pools) {
  constexpr std::int64_t page_elements = std::int64_t{page_size} * head_dim;
  const DType type = index_type(w);
  const std::int64_t pages =
      static_cast<std::int64_t>(pools.index.bytes() / size_of(type)) / page_elements;
  return pools.index.view(type, {pages, page_size, head_dim});
}

DType activation_type(const Workload& w) { return w.kv == DType::f16 ? DType::f16 : DType::bf16; }

std::int64_t sets_for(double bytes_per_call) {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const double wanted = std::max(256e6, 4.0 * static_cast<double>(std::max(cache, 0L)));
  const double sets = std::ceil(wanted / std::max(bytes_per_call, 1.0));
  return static_cast<std::int64_t>(std::clamp(sets, 2.0, 4096.0));
}

Requests::Requests(const Workload& workload, std::int64_t pages, std::int64_t sets, Place& place)
    : workload_(workload), pages_(pages), blocks_(blocks_of(workload.seq_len())) {
  if (pages < 1) {
    throw Error(ErrorCode::invalid_argument, "the pool is smaller than a page; raise --pool-gb");
  }
  const Workload& w = workload_;
  const auto seq_len = static_cast<std::int32_t>(w.seq_len());
  const auto requests = static_cast<std::size_t>(w.batch);
  seq_lens_ = {place, std::vector<std::int32_t>(requests, seq_len)};
  if (!w.is_decode()) {
    context_lens_ = {place,
                     std::vector<std::int32_t>(requests, static_cast<std::int32_t>(w.context))};
    std::vector<std::int32_t> starts;
    for (std::int64_t r = 0; r <= w.batch; ++r) {
      starts.push_back(static_cast<std::int32_t>(r * w.tokens));
    }
    cu_seqlens_q_ = {place, std::move(starts)};
  }
  const std::int64_t entries = w.batch * blocks_;
  for (std::int64_t s = 0; s < sets; ++s) {
    // Fewer pages than blocks: the shuffled pool is used round and round.
    std::vector<std::int32_t> table =
        table_rows(w.batch, blocks_, pages, w.seed + static_cast<std::uint64_t>(s));
    const std::size_t distinct = table.size();
    table.reserve(static_cast<std::size_t>(entries));
    for (auto i = static_cast<std::int64_t>(distinct); i < entries; ++i) {
      table.push_back(table[static_cast<std::size_t>(i) % distinct]);
    }
    tables_.emplace_back(place, std::move(table));
  }
}

BatchMetadata Requests::batch(std::int64_t set) const {
  const Workload& w = workload_;
  BatchMetadata b;
  b.seq_lens = seq_lens_.view(DType::i32, {w.batch});
  b.block_table = tables_[static_cast<std::size_t>(set)].view(DType::i32, {w.batch, blocks_});
  if (w.is_decode()) {
    b.num_decodes = w.batch;
    b.decode_query_len = w.m;
  } else {
    b.num_prefills = w.batch;
    b.cu_seqlens_q = cu_seqlens_q_.view(DType::i32, {w.batch + 1});
    b.context_lens = context_lens_.view(DType::i32, {w.batch});
  }
  b.num_actual_tokens = w.rows();
  b.max_query_len = w.is_decode() ? w.m : w.tokens;
  b.max_seq_len = w.seq_len();
  return b;
}

std::int64_t Requests::position(std::int64_t row) const {
  const std::int64_t length = workload_.is_decode() ? workload_.m : workload_.tokens;
  return workload_.seq_len() - length + row % length;
}

std::vector<std::int64_t> Requests::slots(std::int64_t set) const {
  if (workload_.batch * blocks_ > pages_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} writes into {} pages, the pool holds {}; raise --pool-gb or lower "
                            "the batch or the context",
                            label(workload_), workload_.batch * blocks_, pages_));
  }
  const std::vector<std::int32_t>& table = tables_[static_cast<std::size_t>(set)].values();
  const std::int64_t length = workload_.rows() / workload_.batch;
  std::vector<std::int64_t> slots;
  for (std::int64_t row = 0; row < workload_.rows(); ++row) {
    const std::int64_t at = position(row);
    const std::int64_t cell = row / length * blocks_ + at / page_size;
    slots.push_back(std::int64_t{table[static_cast<std::size_t>(cell)]} * page_size +
                    at % page_size);
  }
  return slots;
}

std::vector<std::int32_t> selection_of(const Workload& w, std::int64_t set) {
  if (!w.selection.empty()) return read_selection(w);
  const std::uint64_t seed = w.seed + static_cast<std::uint64_t>(set);
  if (w.is_decode()) return decode_rows(w.batch, w.m, w.context, w.hkv, seed);
  std::vector<std::int32_t> ids;
  for (std::int64_t r = 0; r < w.batch; ++r) {
    // A single request's seed is the workload's own, as in the published checksums.
    const std::uint64_t request_seed = seed + 100003 * static_cast<std::uint64_t>(r);
    const std::vector<std::int32_t> rows =
        selection_rows(w.tokens, w.context, w.hkv, w.keep, request_seed);
    ids.insert(ids.end(), rows.begin(), rows.end());
  }
  return ids;
}

Work attend_work(const Workload& w, const Requests& requests, std::span<const std::int32_t> ids) {
  const std::int64_t rows = w.rows();
  const std::int64_t row_ids =
      static_cast<std::int64_t>(ids.size()) / std::max<std::int64_t>(rows, 1);
  const std::int64_t topk = row_ids / w.hkv;
  const std::int64_t length = rows / w.batch;
  double keys = 0, tiles = 0;
  for (std::int64_t r = 0; r < w.batch; ++r) {
    for (std::int64_t h = 0; h < w.hkv; ++h) {
      std::set<std::int32_t> touched;
      for (std::int64_t row = r * length; row < (r + 1) * length; ++row) {
        const std::int64_t visible = requests.position(row) + 1;
        for (std::int64_t i = 0; i < topk; ++i) {
          const std::int32_t id = ids[static_cast<std::size_t>(row * row_ids + h * topk + i)];
          if (id < 0) continue;
          touched.insert(id);
          keys += static_cast<double>(
              std::min<std::int64_t>(page_size, visible - std::int64_t{id} * page_size));
        }
      }
      tiles += static_cast<double>(touched.size());
    }
  }
  const double group = static_cast<double>(w.hq) / static_cast<double>(w.hkv);
  const double tile_bytes = 2.0 * page_size * head_dim * bytes_of(w.kv);
  const double row_bytes =
      2.0 * static_cast<double>(w.hq) * head_dim * bytes_of(activation_type(w));  // q and out
  return {4.0 * group * head_dim * keys,
          tiles * tile_bytes + static_cast<double>(rows) * row_bytes};
}

Work index_work(const Workload& w, const Requests& requests) {
  // A row whose blocks all fit its list chooses them whatever their scores.
  const auto scored = [&](std::int64_t row) {
    const std::int64_t visible = requests.position(row) + 1;
    return blocks_of(visible) > generated_topk ? visible : 0;
  };
  double keys = 0;
  for (std::int64_t row = 0; row < w.rows(); ++row) keys += static_cast<double>(scored(row));
  const double heads = static_cast<double>(w.hkv);
  // Requests are alike, and the last row of one sees all of its keys.
  const std::int64_t request_keys = w.rows() > 0 ? scored(w.rows() - 1) : 0;
  const double key_bytes =
      static_cast<double>(w.batch * request_keys) * head_dim * bytes_of(index_type(w));
  const double row_bytes = heads * (head_dim * 2.0 + 4.0 * generated_topk);  // index_q, ids
  return {2.0 * heads * head_dim * keys, key_bytes + static_cast<double>(w.rows()) * row_bytes};
}

Work write_work(const Workload& w) {
  const double hq = static_cast<double>(w.hq), hkv = static_cast<double>(w.hkv);
  const double index = w.dense ? 0 : hkv + 1;                            // index_q and index_k
  const double in = (hq + 2 * hkv + index) * head_dim * 2.0 + 64 * 2.0;  // qkv, cos and sin
  const double out = hq * head_dim * 2.0 + 2 * hkv * head_dim * bytes_of(w.kv) +
                     index * head_dim * bytes_of(index_type(w));
  // For each of the hq + hkv + index heads: squares, scaling and the rotation of half of them.
  const double flops = (hq + hkv + index) * (4.0 * head_dim + 6.0 * 32);
  return {flops * static_cast<double>(w.rows()), (in + out) * static_cast<double>(w.rows())};
}

}  // namespace msa::cli
