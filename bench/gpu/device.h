// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cuda/common/launch.h"
#include "graph_timer.h"
#include "msa/types.h"

/// \file
/// What the benchmarks of operators share: memory of the device, its own rates, and reports.

namespace msa::bench {

using Json = nlohmann::json;

inline constexpr Device device{DeviceType::cuda, 0};

/// Device memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    cuda::check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 16)), "bench", "cudaMalloc");
  }
  template <class T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    cuda::check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
                "bench", "cudaMemcpy");
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() { cudaFree(data_); }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

/// Bytes of the larger pool where the device has room for it beside the rest, else of the usual
/// one.
std::size_t largest_pool();

/// Fills the memory with values of a type as random_values() makes them.
void fill_pool(const Memory& pool, DType type);

/// Microseconds until an eager call of run(i) returns when nothing else is queued; the median.
double host_time(cudaStream_t stream, const std::function<void(int)>& run);

/// Rates of copying, of gathering tiles of 64, 32 and 16 KB, and of products, by name. The memory
/// holds pool_bytes(Variant::usual) at least.
Json measure_rates(const Memory& pool, cudaStream_t stream);

/// Puts a graph's time into a cell: `us`, `fastest_us`, `slowest_us`.
void set_time(Json& cell, const GraphTime& time);

/// \throws Error (io) naming the file.
void write(const Json& report, const std::string& path);

std::string hex(std::uint64_t checksum);

}  // namespace msa::bench
