// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "cuda/common/host_device.h"
#include "cuda/common/scale.cuh"
#include "msa/write_cache.h"

/// \file
/// What write_cache and insert_cache have in common: a row of heads, and what becomes of each.

namespace msa::cuda::portable {

/// Weights of a Gemma RMSNorm.
struct Norm {
  const char* data = nullptr;  // [128] bf16|f16|f32; null: neither norm nor rotation
  DType type = DType::f32;
};

/// Heads of a row that share a source, a norm and a destination: q, k, v, index_q or index_k.
struct Part {
  int heads = 0;

  const char* from = nullptr;                  // [T, heads, 128] bf16|f16
  std::int64_t from_token = 0, from_head = 0;  // strides in bytes

  char* to = nullptr;  // rows [T, heads, 128], or pages [pages, heads, 128, 128]
  std::int64_t to_token = 0, to_head = 0;  // strides in bytes
  std::int64_t to_page = 0;
  const std::int64_t* slots = nullptr;  // [T] of pages; null: row t goes to row t
  std::int64_t row_count = 0;           // of pages: 128 · pages
  DType to_type = DType::bf16;
  int to_size = 2;  // bytes of an element

  Norm norm;
  ScaleView scale;

  /// Pairs of heads in two tokens: one for each head that a token has.
  MSA_HOST_DEVICE constexpr int pairs() const { return heads; }
};

inline constexpr int max_parts = 5;

struct WriteParams {
  explicit WriteParams(const WriteCacheArgs& args);
  explicit WriteParams(const InsertCacheArgs& args);

  Part parts[max_parts];
  int part_count = 0;
  int pairs = 0;            // of heads, in two tokens
  std::int64_t tokens = 0;  // T

  float eps = 0;
  const std::int64_t* positions = nullptr;  // [T]; null: no part has a norm
  const char* cos_sin = nullptr;            // [max_pos, 64] bf16|f16|f32
  DType cos_sin_type = DType::f32;
  std::int64_t cos_sin_row = 0;  // stride in bytes
  std::int64_t max_position = 0;

  bool aligned = true;  // four neighbouring elements are one access everywhere

 private:
  Part& add(std::int64_t heads, const Norm& norm);
  void read(Part& part, const ConstTensor& rows, std::int64_t first_head);
  void write_rows(Part& part, const ConstTensor& rows);
  void write_pages(Part& part, const ConstTensor& cache, const ConstTensor& slot_mapping);
  Norm norm_of(const ConstTensor& weights);
  void require_aligned(const void* base, std::size_t unit,
                       std::initializer_list<std::int64_t> strides);
};

}  // namespace msa::cuda::portable
