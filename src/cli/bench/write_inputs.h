// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cli/bench/requests.h"
#include "msa/write_cache.h"

namespace msa::cli {

/// Inputs and outputs of write_cache: the tokens of a batch's requests at their own positions. Rows
/// of a dense layer have no index vectors.
class WriteInputs {
 public:
  /// \throws Error where the pools have too few pages for slots of their own.
  WriteInputs(const Workload& workload, Pools& pools, std::int64_t sets, const Requests& requests,
              const Requests& index_requests);

  WriteCacheArgs args(std::int64_t set) const;

 private:
  const Workload workload_;
  Place& place_;
  KVCache cache_;
  Tensor index_cache_;
  PlacedBuffer qkv_;
  PlacedBuffer cos_sin_;
  PlacedBuffer norms_;
  PlacedBuffer q_out_;
  PlacedBuffer index_q_out_;
  PlacedVector<std::int64_t> positions_;
  std::vector<PlacedVector<std::int64_t>> slots_;
  std::vector<PlacedVector<std::int64_t>> index_slots_;
};

}  // namespace msa::cli
