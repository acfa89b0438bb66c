// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "msa/layer.h"
#include "verify/inputs.h"
#include "verify/memory.h"

/// \file
/// One step of an engine with all its buffers: what the serving layer's forward calls are fed with.

namespace msa::serving_test {

using verify::Array;
using verify::Poison;

/// Host memory, whatever instruction set is in use.
const verify::Target& host();

struct StepSpec {
  std::vector<std::int32_t> query_lens;
  std::vector<std::int32_t> seq_lens;
  Scale k_scale{};
  Scale v_scale{};
  std::int64_t threshold = 1;
  std::int64_t padding = 0;  // T − sum of query_lens
  std::int64_t q_heads = 8;
  std::int64_t kv_heads = 2;
  std::int64_t index_heads = 2;
  std::int64_t topk = 4;
  std::int64_t spare_rows = 3;  // rows ≥ T of every buffer
  DType q_type = DType::bf16;
  DType kv_type = DType::bf16;
  KVLayout layout = KVLayout::LBHNC;
  Poison poison = Poison::nan;  // of all that no row owns
  std::uint64_t seed = 1;       // of the contents
  std::uint64_t page_seed = 1;  // of the order of the pages
  std::int64_t spare_pages = 3;

  std::int64_t tokens() const;
};

/// Buffers full of poison, in which keys, queries and selections of the spec have been written.
/// Keys are a function of seed, request, position and head alone.
struct Step {
  explicit Step(const StepSpec& spec);

  /// As the engine describes it to the builder.
  StepInputs inputs() const;
  /// The same step with every request as prefill, cut out by hand: the reference's view of it.
  BatchMetadata literal_batch(const ConstTensor& table) const;
  /// The layer with its selection buffer.
  LayerContext layer() const;
  /// Metadata and a workspace of `workspace_bytes`.
  ForwardContext context(std::size_t workspace_bytes = std::size_t{1} << 22) const;
  SparseImpl impl() const;
  Indexer indexer(const SelectRule& rule = {}) const;
  Tensor query() const;   // [rows, Hq·128]
  Tensor output() const;  // [rows, Hq·128]
  Tensor cache() const;   // [pages, Hkv, 128, 256]
  ConstTensor index_table() const { return index_table_array.view(); }
  Tensor index_query() const;  // [rows, Hi·128]

  /// What attend must have made of `output`: the reference on the literal batch.
  std::vector<double> expected(bool use_scales = true) const;
  /// Rows < T of the output.
  std::vector<double> result() const;
  std::vector<std::byte> result_bits() const;

  StepSpec spec;
  std::int64_t pages = 0;
  std::vector<std::int32_t> query_start_loc{0};
  Array seq_lens, table_array, index_table_array, slots;
  Array cu_seqlens_q, context_lens;  // of the literal batch
  Array kv, index_cache, q, index_q, out, topk;
  std::map<std::string, SparseMetadata> metadata;  // of the layer "layers.3.attn"

 private:
  void place_pages();
  void fill_caches();
  void fill_rows();

  mutable std::vector<std::byte> workspace_;
};

inline constexpr const char* layer_name = "layers.3.attn";

}  // namespace msa::serving_test
