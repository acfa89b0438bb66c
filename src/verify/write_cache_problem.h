// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "msa/write_cache.h"
#include "verify/compare.h"
#include "verify/inputs.h"
#include "verify/memory.h"

/// \file
/// One write_cache or insert_cache call made from a description: inputs, poison around them, the
/// call, and what it wrote.

namespace msa::verify {

struct WriteSpec {
  std::int64_t hq = 16;
  std::int64_t hkv = 2;
  std::int64_t hi = 2;  // 0: no index part
  std::int64_t tokens = 7;
  bool insert = false;       // insert_cache: neither norm nor rotation, no queries
  bool main_part = true;     // false: insert_cache without the main cache
  DType type = DType::bf16;  // of the activations
  DType kv = DType::bf16;
  DType index = DType::bf16;
  bool index_q_as_input = false;  // index_q in the activations' type, else in the index cache's
  DType weights = DType::bf16;
  DType cos_sin = DType::f32;
  float eps = 1e-6f;

  KVLayout layout = KVLayout::LBHNC;
  bool split_views = false;  // K head-major and V token-major, in two pools
  std::int64_t layers = 1;
  std::int64_t layer = 0;
  float k_scale = 1;
  float v_scale = 1;
  bool device_scales = false;
  std::int64_t misalign = 0;    // elements; every base pointer
  std::int64_t pad = 0;         // elements between rows and heads of the activations and queries
  std::int64_t index_pad = 0;   // elements between pages of the index cache
  std::int64_t spare_rows = 2;  // rows ≥ T
  std::int64_t first_page = 0;  // > 0: page ids start here, in a sparse reservation
  bool skips = true;            // some slots are −1 or past the end, some positions out of range

  std::uint64_t seed = 1;
  std::uint64_t slot_seed = 1;   // where tokens lie
  std::int64_t first_token = 0;  // tokens are named first_token, first_token + 1, …
  double gain = 1;               // of the activations
  /// Changes the 128 elements of head `head` (q, k, v, index_q, index_k side by side) of a token.
  std::function<void(std::int64_t token, std::int64_t head, DType type, void* x)> edit;
};

/// What a call wrote, by token and dense; rows that are not written hold zeros.
struct WriteOutput {
  std::vector<std::byte> q;        // [T, Hq, 128]
  std::vector<std::byte> k;        // [T, Hkv, 128], from the cache
  std::vector<std::byte> v;        // [T, Hkv, 128]
  std::vector<std::byte> index_q;  // [T, Hi, 128]
  std::vector<std::byte> index_k;  // [T, 128]
};

class WriteProblem {
 public:
  WriteProblem(const Target& target, const WriteSpec& spec, Poison poison);

  const WriteSpec& spec() const { return spec_; }
  DType index_q_type() const { return spec_.index_q_as_input ? spec_.type : spec_.index; }
  /// Whether the token's queries, its row of the main cache or of the index cache are written.
  bool has_position(std::int64_t token) const;
  bool in_main(std::int64_t token) const;
  bool in_index(std::int64_t token) const;

  /// Heads of an input row: q, k, v, index_q, index_k.
  std::int64_t heads() const;
  /// The 128 elements of a head of an input row.
  std::byte* input(std::int64_t token, std::int64_t head) const;

  WriteCacheArgs write_args(Side side) const;
  InsertCacheArgs insert_args(Side side) const { return insert_args(write_args(side)); }
  InsertCacheArgs insert_args(const WriteCacheArgs& w) const;
  /// Calls the operator, with arguments that `change` may still alter (insert_cache takes its rows
  /// from those of write_cache); nothing but what it must write may change.
  WriteOutput run(Judge& judge, const std::function<void(WriteCacheArgs&)>& change = {});
  const Array& qkv() const { return qkv_; }

 private:
  struct View {  // of a cache, on the host
    Buffer* buffer = nullptr;
    Tensor tensor;
  };

  void fill_inputs();
  void fill_slots();
  void make_caches(Poison poison);
  View make_pool(std::vector<std::int64_t> dims, std::vector<std::int64_t> strides, DType type,
                 std::int64_t elements, Poison poison);
  Tensor on(const View& view, Side side) const;
  std::byte* row(const View& view, std::int64_t slot, std::int64_t head) const;
  void download_caches();
  void exclude_written(std::vector<std::vector<std::byte>>& snapshots) const;
  bool only_positions_changed(const Array& queries, const std::vector<std::byte>& before) const;
  bool sparse() const { return spec_.first_page > 0; }

  const Target& target_;
  WriteSpec spec_;
  Array qkv_, positions_, cos_sin_, weights_[4], slots_, index_slots_, q_, index_q_;
  Array k_scale_, v_scale_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  View packed_, k_, v_, index_;
  std::int64_t pages_ = 0;
};

/// Runs with NaN, then with huge poison; both must give the same bits.
WriteOutput poisoned_run(const Target& target, const WriteSpec& spec, Judge& judge);
/// Section 9's row for cache writes.
void judge_against_reference(Judge& judge, const WriteProblem& problem, const WriteOutput& output);
/// The usual case: poisoned_run and judge_against_reference.
Outcome check_write(const Target& target, const WriteSpec& spec);
/// Runs both specs; tokens of the same name, of which there must be some, must have the same bits.
Outcome check_same_bits(const Target& target, const WriteSpec& a, const WriteSpec& b,
                        const std::string& what);

}  // namespace msa::verify
