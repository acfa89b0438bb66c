// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/bench/cases.h"
#include "msa/kv_cache.h"
#include "msa/metadata.h"

/// \file
/// What the cases share: caches over the pools, batches, tables, slots, and the count of work.

namespace msa::cli {

/// The main cache over its pool, in the workload's layout. Layouts that interleave layers get four
/// of them, and the call works on the second.
KVCache main_cache(const Workload& workload, const Pools& pools);
/// The index cache over its pool: e4m3 keys where the main cache is fp8, else bf16.
Tensor index_cache(const Workload& workload, const Pools& pools);

/// Type of queries and of qkv rows: f16 over an f16 cache, else bf16.
DType activation_type(const Workload& workload);

/// Sets of inputs so that their distinct bytes exceed the caches of the processor, and twice those
/// of any CUDA device, by far.
std::int64_t sets_for(double bytes_per_call);

/// A batch of the workload's requests, all of the same lengths. One object holds the arrays that
/// all sets share and one page table for each set.
class Requests {
 public:
  /// Tables over `pages` pages. Where a table needs more, pages serve several blocks.
  Requests(const Workload& workload, std::int64_t pages, std::int64_t sets,
           Place& place = host_place());
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  BatchMetadata batch(std::int64_t set) const;
  /// Slots `[rows]` i64 of the call's own tokens.
  /// \throws Error where blocks share pages, since slots would too.
  std::vector<std::int64_t> slots(std::int64_t set) const;
  /// Physical pages `[batch, blocks]` of a set.
  std::span<const std::int32_t> table(std::int64_t set) const {
    return tables_[static_cast<std::size_t>(set)].values();
  }
  /// Position of a token row.
  std::int64_t position(std::int64_t row) const;

 private:
  const Workload workload_;
  std::int64_t pages_;
  std::int64_t blocks_;
  PlacedVector<std::int32_t> seq_lens_;
  PlacedVector<std::int32_t> cu_seqlens_q_;
  PlacedVector<std::int32_t> context_lens_;
  std::vector<PlacedVector<std::int32_t>> tables_;
};

/// Ids `[rows, hkv, 16]` of set `set`, as the workload's generator draws them.
std::vector<std::int32_t> selection_of(const Workload& workload, std::int64_t set);

/// Work of attend on ids `[rows, hkv, topk]`.
Work attend_work(const Workload& workload, const Requests& requests,
                 std::span<const std::int32_t> ids);
/// Work of index_blocks.
Work index_work(const Workload& workload, const Requests& requests);
/// Work of write_cache; of a dense layer without index vectors.
Work write_work(const Workload& workload);

}  // namespace msa::cli
