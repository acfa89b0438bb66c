// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/block_order.h"

/// \file
/// The running list of a row's best blocks. index_blocks and select_blocks share it, so that their
/// ids are one function of the scores.

namespace msa::cpu {

/// Adds a candidate to `best[topk]`, the best so far in descending order, 0 where there is none.
inline void offer(BlockKey* best, std::int64_t topk, BlockKey key) {
  if (key <= best[topk - 1]) return;
  std::int64_t i = topk - 1;
  for (; i > 0 && best[i - 1] < key; --i) best[i] = best[i - 1];
  best[i] = key;
}

/// Writes the ids of a list in ascending order, then −1.
inline void write_ids(const BlockKey* best, std::int64_t topk, std::int32_t* to,
                      std::int64_t stride) {
  std::array<std::int32_t, max_topk> ids;
  std::int64_t count = 0;
  while (count < topk && best[count] != 0) {
    ids[count] = id_of(best[count]);
    ++count;
  }
  std::sort(ids.begin(), ids.begin() + count);
  for (std::int64_t i = 0; i < topk; ++i) to[i * stride] = i < count ? ids[i] : -1;
}

}  // namespace msa::cpu
