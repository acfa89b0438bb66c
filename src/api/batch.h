// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "api/check.h"
#include "msa/metadata.h"

namespace msa {

/// Checks counts, shapes and types of a batch's metadata; nothing in memory is read.
void check_batch(Checker& check, const BatchMetadata& batch);

/// `inputs` and the batch's arrays.
Regions with_batch(Regions inputs, const BatchMetadata& batch);

/// MSA_CHECK=1: reads the metadata, which lies in host memory, and reports lengths and offsets that
/// leave their ranges, and bounds that are too small.
void check_batch_memory(Checker& check, const BatchMetadata& batch);

/// MSA_CHECK=1: reports cells of a block table, in host memory, that a call needs and that name no
/// page of its cache; a few of them, as a broken table breaks in every row.
class TableCheck {
 public:
  TableCheck(Checker& check, const BatchMetadata& batch, std::int64_t pages)
      : check_(check), batch_(batch), pages_(pages) {}

  /// False where the table has no such column.
  bool cell(std::int64_t request, std::int64_t column);

 private:
  static constexpr int most_reported = 4;

  Checker& check_;
  const BatchMetadata& batch_;
  std::int64_t pages_;
  int reported_ = 0;
};

/// MSA_CHECK=1: the cells of all blocks that a request's length reaches. `world`, `rank`: the shard
/// of the table's columns.
void check_visible_cells(Checker& check, const BatchMetadata& batch, std::int64_t pages,
                         std::int64_t rank = 0, std::int64_t world = 1);

}  // namespace msa
