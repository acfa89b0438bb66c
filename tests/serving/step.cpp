// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "step.h"

#include <algorithm>
#include <numeric>

#include "common/numeric.h"
#include "reference/reference.h"

namespace msa::serving_test {
namespace {

using verify::Rng;
using verify::seed_of;

std::int64_t blocks_of(std::int64_t tokens) { return (tokens + page_size - 1) / page_size; }

/// Rows of a buffer as one flat row a token.
Tensor flat(const Array& rows) {
  const Tensor t = rows.view();
  return Tensor(t.data, t.dtype, {t.shape[0], t.shape[1] * t.shape[2]}, {t.stride[0], 1});
}

/// The second of two layers of a cache in a named order.
Tensor layer_view(const Array& cache, const StepSpec& spec, std::int64_t pages) {
  return kv_layer_view(cache.buffer().data(), spec.kv_type, spec.layout,
                       {.layers = 2, .pages = pages, .heads = spec.kv_heads}, 1);
}

}  // namespace

const verify::Target& host() {
  static const verify::Target target = verify::targets().front();
  return target;
}

std::int64_t StepSpec::tokens() const {
  return std::accumulate(query_lens.begin(), query_lens.end(), padding);
}

Step::Step(const StepSpec& s) : spec(s) {
  const auto requests = static_cast<std::int64_t>(s.seq_lens.size());
  const std::int64_t rows = s.tokens() + s.spare_rows;
  std::int64_t columns = 1;
  pages = 1 + s.spare_pages;
  for (std::int32_t keys : s.seq_lens) {
    pages += blocks_of(keys);
    columns = std::max(columns, blocks_of(keys) + 2);
  }
  const verify::Target& at = host();
  seq_lens = Array(at, DType::i32, {requests}, s.poison);
  table_array = Array(at, DType::i32, {requests, columns}, s.poison, {columns + 1, 1}, 1);
  index_table_array = Array(at, DType::i32, {requests, columns + 3}, s.poison);
  slots = Array(at, DType::i64, {rows}, s.poison);
  cu_seqlens_q = Array(at, DType::i32, {requests + 1}, s.poison);
  context_lens = Array(at, DType::i32, {requests}, s.poison);
  kv = Array(at, s.kv_type, {2 * pages * s.kv_heads * page_size * 2 * head_dim}, s.poison);
  index_cache = Array(at, DType::bf16, {pages, page_size, head_dim}, s.poison);
  q = Array(at, s.q_type, {rows, s.q_heads, head_dim}, s.poison);
  index_q = Array(at, s.q_type, {rows, s.index_heads, head_dim}, s.poison);
  out = Array(at, s.q_type, {rows, s.q_heads, head_dim}, s.poison,
              {(s.q_heads + 1) * head_dim, head_dim, 1});
  topk = Array(at, DType::i32, {Indexer::buffer_rows(rows), s.kv_heads, s.topk}, s.poison);
  place_pages();
  fill_caches();
  fill_rows();
  metadata[layer_name] = MetadataBuilder(s.threshold).build(inputs());
}

/// Every request gets pages of its own in both caches, in two orders; page 0 stays the null page.
void Step::place_pages() {
  for (const Array* table : {&table_array, &index_table_array}) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(std::max<std::int64_t>(pages - 1, 0)));
    std::iota(order.begin(), order.end(), 1);
    Rng rng(seed_of({spec.page_seed, table == &table_array ? 0u : 1u}));
    rng.shuffle(order);
    for (std::size_t r = 0; r < spec.seq_lens.size(); ++r) {
      for (std::int64_t b = 0; b < blocks_of(spec.seq_lens[r]); ++b) {
        verify::i32(*table, static_cast<std::int64_t>(r), b) = order.back();
        order.pop_back();
      }
    }
  }
}

void Step::fill_caches() {
  const Tensor view = cache();
  const auto size = static_cast<std::int64_t>(size_of(spec.kv_type));
  for (std::size_t i = 0; i < spec.seq_lens.size(); ++i) {
    const auto r = static_cast<std::int64_t>(i);
    for (std::int64_t p = 0; p < spec.seq_lens[i]; ++p) {
      const std::int64_t page = verify::i32(table_array, r, p / page_size);
      for (std::int64_t h = 0; h < spec.kv_heads; ++h) {
        const std::int64_t offset =
            page * view.stride[0] + h * view.stride[1] + p % page_size * view.stride[2];
        verify::fill_normal(
            spec.kv_type, view.ptr<char>() + offset * size, 2 * head_dim,
            seed_of({spec.seed, i, static_cast<std::uint64_t>(p), static_cast<std::uint64_t>(h)}));
      }
      // Small integers: every score is exact in any order, so ids can be compared.
      const std::int64_t index_page = verify::i32(index_table_array, r, p / page_size);
      verify::fill_integers(
          DType::bf16,
          index_cache.data<std::uint16_t>() + index_cache.at(index_page, p % page_size), head_dim,
          seed_of({spec.seed, i, static_cast<std::uint64_t>(p), 77}));
    }
  }
}

/// Queries, and selections in no order, with holes, repeats and ids past what the row sees.
void Step::fill_rows() {
  std::int64_t t = 0;
  Rng rng(seed_of({spec.seed, 5}));
  for (std::size_t r = 0; r < spec.query_lens.size(); ++r) {
    verify::i32(seq_lens, static_cast<std::int64_t>(r)) = spec.seq_lens[r];
    query_start_loc.push_back(query_start_loc.back() + spec.query_lens[r]);
    for (std::int32_t i = 0; i < spec.query_lens[r]; ++i, ++t) {
      const std::int64_t blocks = std::max<std::int64_t>(blocks_of(spec.seq_lens[r]), 1);
      for (std::int64_t h = 0; h < spec.kv_heads; ++h) {
        for (std::int64_t k = 0; k < spec.topk; ++k) {
          verify::i32(topk, t, h, k) =
              rng.chance(20) ? -1 : static_cast<std::int32_t>(rng.below(blocks + 1));
        }
      }
    }
  }
  const std::int64_t rows = spec.tokens();
  for (t = 0; t < rows; ++t) {
    const auto token = static_cast<std::uint64_t>(t);
    verify::fill_normal(spec.q_type, q.data<std::uint16_t>() + q.at(t), spec.q_heads * head_dim,
                        seed_of({spec.seed, token, 11}));
    verify::fill_integers(spec.q_type, index_q.data<std::uint16_t>() + index_q.at(t),
                          spec.index_heads * head_dim, seed_of({spec.seed, token, 13}));
  }
  for (std::size_t r = 0; r < spec.query_lens.size(); ++r) {
    const auto i = static_cast<std::int64_t>(r);
    verify::i32(context_lens, i) = spec.seq_lens[r] - spec.query_lens[r];
    verify::i32(cu_seqlens_q, i + 1) = query_start_loc[r + 1];
  }
  verify::i32(cu_seqlens_q, 0) = 0;
}

StepInputs Step::inputs() const {
  StepInputs step;
  step.query_start_loc = query_start_loc;
  step.seq_lens_host = spec.seq_lens;
  step.seq_lens = seq_lens.view();
  step.block_table = table_array.view();
  step.slot_mapping = slots.view();
  step.num_actual_tokens = spec.tokens();
  return step;
}

BatchMetadata Step::literal_batch(const ConstTensor& table) const {
  BatchMetadata batch;
  batch.seq_lens = seq_lens.view();
  batch.block_table = table;
  batch.cu_seqlens_q = cu_seqlens_q.view();
  batch.context_lens = context_lens.view();
  batch.num_prefills = static_cast<std::int64_t>(spec.seq_lens.size());
  batch.num_actual_tokens = spec.tokens();
  for (std::size_t r = 0; r < spec.seq_lens.size(); ++r) {
    batch.max_query_len = std::max<std::int64_t>(batch.max_query_len, spec.query_lens[r]);
    batch.max_seq_len = std::max<std::int64_t>(batch.max_seq_len, spec.seq_lens[r]);
  }
  return batch;
}

LayerContext Step::layer() const {
  return {.name = layer_name,
          .topk_indices = topk.view(),
          .k_scale = spec.k_scale,
          .v_scale = spec.v_scale};
}

ForwardContext Step::context(std::size_t workspace_bytes) const {
  workspace_.assign(workspace_bytes, std::byte{0xff});
  ForwardContext context;
  context.metadata = &metadata;
  context.workspace = {workspace_.data(), workspace_.size()};
  return context;
}

SparseImpl Step::impl() const {
  SparseImpl::Config config;
  config.num_heads = spec.q_heads;
  config.num_kv_heads = spec.kv_heads;
  config.kv_cache_dtype = spec.kv_type;
  return SparseImpl(config);
}

Indexer Step::indexer(const SelectRule& rule) const {
  Indexer::Config config;
  config.num_index_heads = spec.index_heads;
  config.topk = spec.topk;
  config.rule = rule;
  return Indexer(config);
}

Tensor Step::query() const { return flat(q); }
Tensor Step::output() const { return flat(out); }
Tensor Step::index_query() const { return flat(index_q); }
Tensor Step::cache() const { return layer_view(kv, spec, pages); }

std::vector<double> Step::expected(bool use_scales) const {
  AttendArgs args;
  args.q = q.view();
  args.kv_cache = ConstKVCache(cache());
  args.selection = topk.view();
  args.batch = literal_batch(table_array.view());
  if (use_scales) {
    args.k_scale = spec.k_scale;
    args.v_scale = spec.v_scale;
  }
  return reference::attend(args).out;
}

std::vector<double> Step::result() const {
  std::vector<double> values;
  for (std::int64_t t = 0; t < spec.tokens(); ++t) {
    for (std::int64_t i = 0; i < spec.q_heads * head_dim; ++i) {
      values.push_back(load(spec.q_type, out.buffer().data(), out.at(t) + i));
    }
  }
  return values;
}

std::vector<std::byte> Step::result_bits() const {
  return verify::dense_bytes(out.view().narrow(0, 0, spec.tokens()));
}

}  // namespace msa::serving_test
