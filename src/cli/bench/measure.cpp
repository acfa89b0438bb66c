// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace msa::cli {
namespace {

/// Nearest rank in a sorted list.
double percentile(const std::vector<double>& sorted, double share) {
  const double rank = std::round(share * static_cast<double>(sorted.size() - 1));
  return sorted[static_cast<std::size_t>(rank)];
}

}  // namespace

Timing measure(const std::function<void(std::int64_t)>& call, const Effort& effort) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  call(0);
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last = begin;
  while (static_cast<std::int64_t>(times.size()) < std::max<std::int64_t>(effort.min_calls, 1) ||
         seconds(last - begin) < effort.min_seconds) {
    call(static_cast<std::int64_t>(times.size()) + 1);
    const Clock::time_point now = Clock::now();
    times.push_back(seconds(now - last));
    last = now;
  }
  std::sort(times.begin(), times.end());
  return {percentile(times, 0.5), percentile(times, 0.1), percentile(times, 0.9),
          static_cast<std::int64_t>(times.size())};
}

}  // namespace msa::cli
