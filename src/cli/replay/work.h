// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "cli/replay/engine.h"
#include "cli/replay/scheduler.h"

/// \file
/// How much there is to compute.

namespace msa::replay {

/// Multiply-adds: key products of the indexer, key and value products of attend.
struct Work {
  double index = 0;
  double attend = 0;
};

/// Sum of min(p + 1, most) over the positions p in [first, first + count).
constexpr double sum_of_keys(std::int64_t first, std::int64_t count, std::int64_t most) {
  const std::int64_t growing = std::clamp<std::int64_t>(most - first, 0, count);
  const double ramp = static_cast<double>(growing) *
                      (static_cast<double>(first) + static_cast<double>(growing + 1) / 2);
  return ramp + static_cast<double>(count - growing) * static_cast<double>(most);
}

/// Work of the rows at positions [first, first + count) of one request.
constexpr Work rows_work(const LayerShape& shape, std::int64_t first, std::int64_t count) {
  return {
      sum_of_keys(first, count, max_context) * static_cast<double>(shape.index_heads * head_dim),
      2 * sum_of_keys(first, count, Engine::topk * page_size) *
          static_cast<double>(shape.q_heads * head_dim)};
}

constexpr Work item_work(const LayerShape& shape, const StepItem& item) {
  return rows_work(shape, item.first_position, item.query_len);
}

}  // namespace msa::replay
