// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "api/check.h"
#include "msa/metadata.h"

namespace msa {

/// Checks counts, shapes and types of a batch's metadata; nothing in memory is read.
void check_batch(Checker& check, const BatchMetadata& batch);

/// `inputs` and the batch's arrays.
std::vector<Region> with_batch(std::vector<Region> inputs, const BatchMetadata& batch);

/// MSA_CHECK=1: reads the metadata, which lies in host memory, and reports lengths, offsets and
/// needed table entries that leave their ranges, and bounds that are too small. `pages`: extent of
/// the cache that the table points into; `world`, `rank`: the shard of its columns.
void check_batch_memory(Checker& check, const BatchMetadata& batch, std::int64_t pages,
                        std::int64_t rank = 0, std::int64_t world = 1);

}  // namespace msa
