// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/write_inputs.h"

#include <algorithm>
#include <vector>

#include "cli/io/rotation.h"
#include "common/numeric.h"

namespace msa::cli {
namespace {

/// The rotary table, rounded to bf16.
PlacedBuffer bf16_rotation_table(Place& place, std::int64_t positions) {
  const std::vector<float> exact = rotation_table(positions);
  PlacedBuffer table(place, exact.size() * size_of(DType::bf16));
  std::transform(exact.begin(), exact.end(), table.host_as<std::uint16_t>(), float_to_bf16);
  table.upload();
  return table;
}

std::int64_t row_elements(const Workload& w) {
  return (w.hq + 2 * w.hkv + (w.dense ? 0 : w.hkv + 1)) * head_dim;
}

}  // namespace

WriteInputs::WriteInputs(const Workload& w, Pools& pools, std::int64_t sets,
                         const Requests& requests, const Requests& index_requests)
    : workload_(w),
      place_(pools.place),
      cache_(main_cache(w, pools)),
      index_cache_(index_cache(w, pools)),
      cos_sin_(bf16_rotation_table(pools.place, w.seq_len())) {
  pools.fill_main(w.kv);
  if (!w.dense) pools.fill_index(index_cache_.dtype);
  const DType type = activation_type(w);
  qkv_ = normal_memory(place_, type, sets * w.rows() * row_elements(w), w.seed + 2);
  norms_ = normal_memory(place_, type, head_dim, w.seed + 3);
  q_out_ =
      PlacedBuffer(place_, static_cast<std::size_t>(w.rows() * w.hq * head_dim) * size_of(type));
  index_q_out_ =
      PlacedBuffer(place_, static_cast<std::size_t>(w.rows() * w.hkv * head_dim) * size_of(type));
  std::vector<std::int64_t> positions;
  for (std::int64_t row = 0; row < w.rows(); ++row) positions.push_back(requests.position(row));
  positions_ = {place_, std::move(positions)};
  for (std::int64_t s = 0; s < sets; ++s) {
    slots_.emplace_back(place_, requests.slots(s));
    if (!w.dense) index_slots_.emplace_back(place_, index_requests.slots(s));
  }
}

WriteCacheArgs WriteInputs::args(std::int64_t set) const {
  const Workload& w = workload_;
  const DType type = activation_type(w);
  const std::int64_t rows = w.rows();
  const std::int64_t offset =
      set * rows * row_elements(w) * static_cast<std::int64_t>(size_of(type));
  WriteCacheArgs a;
  a.qkv = Tensor::dense(static_cast<char*>(qkv_.data()) + offset, type, {rows, row_elements(w)},
                        place_.device());
  a.positions = positions_.view(DType::i64, {rows});
  a.cos_sin = cos_sin_.view(DType::bf16, {w.seq_len(), rotary_elements});
  const ConstTensor norm = norms_.view(type, {head_dim});
  a.q_norm = a.k_norm = norm;
  const auto at = static_cast<std::size_t>(set);
  a.slot_mapping = slots_[at].view(DType::i64, {rows});
  a.q_out = q_out_.view(type, {rows, w.hq, head_dim});
  a.kv_cache = cache_;
  if (!w.dense) {
    a.index_q_norm = a.index_k_norm = norm;
    a.index_slot_mapping = index_slots_[at].view(DType::i64, {rows});
    a.index_q_out = index_q_out_.view(type, {rows, w.hkv, head_dim});
    a.index_cache = index_cache_;
  }
  a.num_tokens = rows;
  a.stream = place_.stream();
  return a;
}

}  // namespace msa::cli
