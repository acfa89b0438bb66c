// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/dense.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cli/bench/memory.h"
#include "msa/device.h"
#include "msa/merge.h"

namespace msa::cli {
namespace {

constexpr std::int64_t chunk_keys = DenseAttend::chunk_blocks * page_size;

std::int64_t chunks_of(const Workload& w) { return (w.context + chunk_keys - 1) / chunk_keys; }

}  // namespace

DenseAttend::DenseAttend(const Workload& w, const KVCache& cache, const Requests& requests,
                         std::int64_t sets, Place& place)
    : workload_(w),
      place_(place),
      cache_(cache),
      chunks_(chunks_of(w)),
      // The last of m rows sees m − 1 keys more than the first: those of the next chunk.
      columns_(chunk_blocks + (w.m > 1 ? 1 : 0)) {
  const DType type = activation_type(w);
  const std::int64_t elements = w.rows() * w.hq * head_dim;
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(type);
  const auto parts = static_cast<std::size_t>(chunks_);
  q_ = PlacedBuffer(place, static_cast<std::size_t>(sets) * parts * bytes);
  const PlacedBuffer rows = normal_memory(place, type, sets * elements, w.seed + 1);
  for (std::size_t copy = 0; copy < static_cast<std::size_t>(sets) * parts; ++copy) {
    place.copy(static_cast<char*>(q_.data()) + copy * bytes,
               static_cast<const char*>(rows.data()) + copy / parts * bytes, bytes);
  }
  place.synchronize();  // the rows go away
  out_ = PlacedBuffer(place, parts * bytes);
  lse_ = PlacedBuffer(place, parts * static_cast<std::size_t>(w.rows() * w.hq) * sizeof(float));

  std::vector<std::int32_t> ids(parts * static_cast<std::size_t>(w.rows() * w.hkv * chunk_blocks));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(chunk_blocks));
  }
  selection_ = {place, std::move(ids)};
  std::vector<std::int32_t> lengths;
  for (std::int64_t c = 0; c < chunks_; ++c) {
    const std::int64_t left = w.context - c * chunk_keys;
    lengths.insert(lengths.end(), static_cast<std::size_t>(w.batch),
                   static_cast<std::int32_t>(std::min(left, chunk_keys + w.m - 1)));
  }
  seq_lens_ = {place, std::move(lengths)};
  for (std::int64_t s = 0; s < sets; ++s) {
    const std::span<const std::int32_t> table = requests.table(s);
    const std::int64_t blocks = static_cast<std::int64_t>(table.size()) / w.batch;
    std::vector<std::int32_t> cut(static_cast<std::size_t>(chunks_ * w.batch * columns_), -1);
    auto to = cut.begin();
    for (std::int64_t c = 0; c < chunks_; ++c) {
      for (std::int64_t r = 0; r < w.batch; ++r, to += columns_) {
        const std::int64_t first = c * chunk_blocks;
        std::copy_n(table.begin() + r * blocks + first, std::min(columns_, blocks - first), to);
      }
    }
    tables_.emplace_back(place, std::move(cut));
  }
  workspace_ = PlacedBuffer(place, workspace_size(args(0)));
}

Tensor DenseAttend::part(const PlacedBuffer& memory, std::int64_t set, std::int64_t first,
                         std::int64_t count) const {
  const Workload& w = workload_;
  const DType type = activation_type(w);
  const std::int64_t row = w.hq * head_dim * static_cast<std::int64_t>(size_of(type));
  return Tensor::dense(static_cast<char*>(memory.data()) + (set * chunks_ * w.rows() + first) * row,
                       type, {count, w.hq, head_dim}, place_.device());
}

Tensor DenseAttend::lse_part(std::int64_t first, std::int64_t count) const {
  return Tensor::dense(static_cast<float*>(lse_.data()) + first * workload_.hq, DType::f32,
                       {count, workload_.hq}, place_.device());
}

AttendArgs DenseAttend::args(std::int64_t set) const {
  const Workload& w = workload_;
  const std::int64_t rows = chunks_ * w.rows(), requests = chunks_ * w.batch;
  AttendArgs a;
  a.q = part(q_, set, 0, rows);
  a.out = part(out_, 0, 0, rows);
  a.lse = lse_part(0, rows);
  a.kv_cache = cache_;
  a.selection = selection_.view(DType::i32, {rows, w.hkv, chunk_blocks});
  a.batch.seq_lens = seq_lens_.view(DType::i32, {requests});
  a.batch.block_table =
      tables_[static_cast<std::size_t>(set)].view(DType::i32, {requests, columns_});
  a.batch.num_decodes = requests;
  a.batch.decode_query_len = w.m;
  a.batch.num_actual_tokens = rows;
  a.batch.max_query_len = w.m;
  a.batch.max_seq_len = seq_lens_.values().front();
  a.workspace = {workspace_.data(), workspace_.bytes()};
  a.stream = place_.stream();
  return a;
}

/// Joins the last half of so many chunks into the first, row by row.
void DenseAttend::merge(std::int64_t chunks) const {
  const std::int64_t count = chunks / 2 * workload_.rows();
  const std::int64_t second = (chunks - chunks / 2) * workload_.rows();
  MergeArgs m;
  m.out_a = part(out_, 0, 0, count);
  m.lse_a = lse_part(0, count);
  m.out_b = part(out_, 0, second, count);
  m.lse_b = lse_part(second, count);
  m.out = part(out_, 0, 0, count);
  m.lse = lse_part(0, count);
  m.stream = place_.stream();
  merge_states(m);
}

void DenseAttend::call(std::int64_t set) {
  attend(args(set));
  backend_ = last_backend();
  for (std::int64_t chunks = chunks_; chunks > 1; chunks -= chunks / 2) merge(chunks);
}

Work dense_work(const Workload& w, const Requests& requests) {
  double keys = 0;  // of all rows
  for (std::int64_t row = 0; row < w.rows(); ++row) {
    keys += static_cast<double>(requests.position(row) + 1);
  }
  const auto hq = static_cast<double>(w.hq);
  const double key_bytes =
      2.0 * static_cast<double>(w.hkv) * head_dim * static_cast<double>(size_of(w.kv));
  const double row_bytes = 2.0 * hq * head_dim * static_cast<double>(size_of(activation_type(w)));
  return {4.0 * hq * head_dim * keys, static_cast<double>(w.batch * w.context) * key_bytes +
                                          static_cast<double>(w.rows()) * row_bytes};
}

}  // namespace msa::cli
