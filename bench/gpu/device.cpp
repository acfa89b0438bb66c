// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "inputs.h"
#include "msa/error.h"
#include "rates.h"

namespace msa::bench {

using cuda::check;

std::size_t largest_pool() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "bench", "cudaMemGetInfo");
  const std::size_t large = pool_bytes(Variant::large_pool);
  constexpr std::size_t rest = std::size_t{2} << 30;
  if (free >= large + rest) return large;
  std::printf("no room for a pool of 64 GB: its cells are left out\n");
  return pool_bytes(Variant::usual);
}

void fill_pool(const Memory& pool, DType type) {
  constexpr std::size_t chunk = std::size_t{64} << 20;
  const Memory values(random_values(type, chunk / 2, 1));
  for (std::size_t at = 0; at < pool.bytes(); at += chunk) {
    check(cudaMemcpy(static_cast<char*>(pool.data()) + at, values.data(), chunk,
                     cudaMemcpyDeviceToDevice),
          "bench", "cudaMemcpy");
  }
}

double host_time(cudaStream_t stream, const std::function<void(int)>& run) {
  using Clock = std::chrono::steady_clock;
  constexpr int eager_calls = 101;
  std::vector<double> times;
  for (int i = 0; i < eager_calls; ++i) {
    check(cudaStreamSynchronize(stream), "bench", "cudaStreamSynchronize");
    const Clock::time_point begin = Clock::now();
    run(i);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  check(cudaStreamSynchronize(stream), "bench", "cudaStreamSynchronize");
  std::nth_element(times.begin(), times.begin() + eager_calls / 2, times.end());
  return times[eager_calls / 2];
}

Json measure_rates(const Memory& pool, cudaStream_t stream) {
  constexpr int replays = 11;
  Json rates;
  constexpr std::size_t copied = std::size_t{2} << 30;
  char* bytes = static_cast<char*>(pool.data());
  const GraphTime copy = time_graph(stream, 3, replays, Edges::full, [&](int i) {
    launch_copy(bytes + (i % 2 + 3) * copied, bytes + i % 3 * copied, copied, stream);
  });
  rates["copy_tbps"] = 2e-6 * static_cast<double>(copied) / copy.median;
  for (const int kb : {64, 32, 16}) {
    const Gather gather(pool.data(), pool_bytes(Variant::usual),
                        static_cast<std::size_t>(kb) * 1024, (std::int64_t{2} << 30) / (kb * 1024));
    const GraphTime time = time_graph(stream, 3, replays, Edges::full, [&](int i) {
      gather.launch(static_cast<std::uint32_t>(i + 1), stream);
    });
    rates["gather_" + std::to_string(kb) + "k_tbps"] =
        1e-6 * static_cast<double>(gather.bytes()) / time.median;
  }
  const MatmulLoop matmul;
  const GraphTime time =
      time_graph(stream, 3, replays, Edges::full, [&](int) { matmul.launch(stream); });
  rates["matmul_bf16_tflops"] = 1e-6 * matmul.flops() / time.median;
  const MmaLoop mma;
  const GraphTime mma_time =
      time_graph(stream, 3, replays, Edges::full, [&](int) { mma.launch(stream); });
  rates["mma_bf16_tflops"] = 1e-6 * mma.flops() / mma_time.median;
  return rates;
}

void set_time(Json& cell, const GraphTime& time) {
  cell["us"] = time.median;
  cell["fastest_us"] = time.fastest;
  cell["slowest_us"] = time.slowest;
}

void write(const Json& report, const std::string& path) {
  std::ofstream file(path);
  file << report.dump(1) << "\n";
  if (!file.flush()) throw Error(ErrorCode::io, path + ": cannot be written");
}

std::string hex(std::uint64_t checksum) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
  return text;
}

}  // namespace msa::bench
