// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/requests.h"
#include "msa/attend.h"

namespace msa::cli {

/// Dense attention of decode rows by the operators that there are: a row selects at most 64 blocks,
/// so each request becomes as many requests of one *chunk* of 64 blocks each, in one call of attend
/// with LSE, and merge_states joins their partial results, half of the chunks at a time. A kernel
/// for dense attention would merge within.
class DenseAttend {
 public:
  static constexpr std::int64_t chunk_blocks = max_topk;

  /// Queries of all sets, a copy of each for every chunk, are made here.
  DenseAttend(const Workload& workload, const KVCache& cache, const Requests& requests,
              std::int64_t sets, Place& place);

  void call(std::int64_t set);
  /// That attended, whoever merged.
  const std::string& backend() const { return backend_; }

  /// Queries of a set, `[rows, hq, 128]`, and what the last call wrote: `[rows, hq, 128]` and
  /// `[rows, hq]` f32; rows as in the workload's batch.
  Tensor queries(std::int64_t set) const { return part(q_, set, 0, workload_.rows()); }
  Tensor out() const { return part(out_, 0, 0, workload_.rows()); }
  Tensor lse() const { return lse_part(0, workload_.rows()); }

 private:
  /// Partial results lie chunk by chunk: row r of chunk c at c · rows + r.
  Tensor part(const PlacedBuffer& memory, std::int64_t set, std::int64_t first,
              std::int64_t count) const;
  Tensor lse_part(std::int64_t first, std::int64_t count) const;
  AttendArgs args(std::int64_t set) const;
  void merge(std::int64_t chunks) const;

  const Workload workload_;
  Place& place_;
  KVCache cache_;
  std::int64_t chunks_;
  std::int64_t columns_;  // of a chunk's table
  PlacedBuffer q_;        // [sets, chunks, rows, hq, 128]
  PlacedBuffer out_;      // [chunks, rows, hq, 128]
  PlacedBuffer lse_;      // [chunks, rows, hq] f32
  PlacedBuffer workspace_;
  std::string backend_;
  PlacedVector<std::int32_t> selection_;            // [chunks, rows, hkv, 64]: all of a chunk
  PlacedVector<std::int32_t> seq_lens_;             // [chunks, batch], within the chunk
  std::vector<PlacedVector<std::int32_t>> tables_;  // [chunks, batch, columns], one a set
};

/// Work of dense attention, whoever computes it: every visible key and value once.
Work dense_work(const Workload& workload, const Requests& requests);

}  // namespace msa::cli
