// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/limits.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cli/bench/measure.h"
#include "cli/bench/rates.h"
#include "cli/io/generate.h"
#include "cpu/parallel.h"
#ifdef MSA_HAS_CUDA
#include "cuda/place/rates.h"
#endif

namespace msa::cli {
namespace {

/// Tasks for each thread: enough that one late thread does not decide the time.
constexpr std::int64_t tasks_per_thread = 8;
constexpr Effort effort{.min_seconds = 0.4, .min_calls = 7};

/// Rates are taken at the tenth percentile of the times: a limit is what the machine does when
/// nothing disturbs it.
double measure_flops() {
  constexpr std::int64_t iterations = 400'000;
  const std::int64_t tasks = tasks_per_thread * cpu::num_threads();
  std::vector<double> done(static_cast<std::size_t>(tasks));
  const auto call = [&](std::int64_t) {
    cpu::parallel_for(tasks, [&](std::int64_t task) {
      done[static_cast<std::size_t>(task)] = product_loop(iterations);
    });
  };
  const Timing timing = measure(call, effort);
  double flops = 0;
  for (double part : done) flops += part;
  return flops / timing.p10;
}

double measure_bandwidth(const void* pool, std::size_t bytes) {
  constexpr std::size_t page_bytes = 64 << 10;
  const auto pages = static_cast<std::int64_t>(bytes / page_bytes);
  if (pages == 0) return 0;
  const std::int64_t tasks = tasks_per_thread * cpu::num_threads();
  const std::int64_t pages_per_task = std::clamp<std::int64_t>(pages / tasks / 4, 1, 256);
  std::atomic<std::uint32_t> sink{0};
  const auto call = [&](std::int64_t round) {
    cpu::parallel_for(tasks, [&](std::int64_t task) {
      SplitMix64 random(static_cast<std::uint64_t>(round * tasks + task));
      std::uint32_t sum = 0;
      for (std::int64_t i = 0; i < pages_per_task; ++i) {
        const std::size_t offset = static_cast<std::size_t>(random.below(pages)) * page_bytes;
        sum ^= read_loop(static_cast<const char*>(pool) + offset, page_bytes);
      }
      sink.fetch_xor(sum, std::memory_order_relaxed);
    });
  };
  const Timing timing = measure(call, effort);
  return static_cast<double>(tasks * pages_per_task) * page_bytes / timing.p10;
}

}  // namespace

Limits measure_limits(Pools& pools) {
  Limits limits;
#ifdef MSA_HAS_CUDA
  if (!pools.place.is_host()) {
    const cuda::DeviceRates rates =
        cuda::measure_rates(pools.place, pools.main.data(), pools.main.bytes());
    limits.flops = rates.matmul_flops;
    for (const cuda::MemoryRate& rate : rates.memory) {
      limits.rates.emplace_back(rate.name, rate.bytes_per_second);
      limits.bandwidth = std::max(limits.bandwidth, rate.bytes_per_second);
    }
    return limits;
  }
#endif
  limits.flops = measure_flops();
  limits.bandwidth = measure_bandwidth(pools.main.data(), pools.main.bytes());
  return limits;
}

double best_seconds(const Limits& limits, double flops, double bytes) {
  const double compute = limits.flops > 0 ? flops / limits.flops : 0;
  const double memory = limits.bandwidth > 0 ? bytes / limits.bandwidth : 0;
  return std::max(compute, memory);
}

bool compute_bound(const Limits& limits, double flops, double bytes) {
  return flops * limits.bandwidth > bytes * limits.flops;
}

}  // namespace msa::cli
