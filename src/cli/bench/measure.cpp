// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

namespace msa::cli {
namespace {

/// Nearest rank in a sorted list.
double percentile(const std::vector<double>& sorted, double share) {
  const double rank = std::round(share * static_cast<double>(sorted.size() - 1));
  return sorted[static_cast<std::size_t>(rank)];
}

/// Of `times` each of which stands for so many calls.
Timing timing_of(std::vector<double> times, std::int64_t calls) {
  std::sort(times.begin(), times.end());
  return {percentile(times, 0.5), percentile(times, 0.1), percentile(times, 0.9),
          static_cast<std::int64_t>(times.size()) * calls};
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
  return timing_of(std::move(times), 1);
}

Timing measure_recorded(Place& place, const std::function<void(std::int64_t)>& call,
                        std::int64_t sets, const Effort& effort) {
  constexpr std::int64_t least_calls = 20;  // in a graph, whose launch they share
  const std::int64_t calls = std::max(least_calls, sets);
  call(0);  // loads the kernels
  place.synchronize();
  const auto recording = place.record([&] {
    for (std::int64_t i = 0; i < calls; ++i) call(i);
  });
  recording->run();
  std::vector<double> times;
  double total = 0;
  while (static_cast<std::int64_t>(times.size()) < std::max<std::int64_t>(effort.min_calls, 1) ||
         total < effort.min_seconds) {
    const double seconds = recording->run();
    total += seconds;
    times.push_back(seconds / static_cast<double>(calls));
  }
  return timing_of(std::move(times), calls);
}

}  // namespace msa::cli
