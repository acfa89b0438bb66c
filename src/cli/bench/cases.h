// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/bench/memory.h"
#include "cli/io/workload.h"
#include "msa/device.h"

/// \file
/// Benchmark cases: one operator call on inputs of a workload.

namespace msa::cli {

/// Memory of the paged caches, shared by all cases of a run and filled once for each type.
class Pools {
 public:
  /// `bytes` for K and V, half as much for index keys.
  Pools(Place& where, std::size_t bytes)
      : place(where), main(where, bytes), index(where, bytes / 2) {}

  /// Fills the pool of K and V, or of index keys, with values of the type.
  void fill_main(DType type) { fill(main, main_type_, type); }
  void fill_index(DType type) { fill(index, index_type_, type); }

  Place& place;
  PlacedBuffer main;
  PlacedBuffer index;

 private:
  void fill(PlacedBuffer& memory, std::optional<DType>& current, DType type);
  std::optional<DType> main_type_;
  std::optional<DType> index_type_;
};

/// Useful work of one call.
struct Work {
  double flops = 0;  ///< multiply-adds count two
  double bytes = 0;  ///< that must move at least: each key, value, query and result once
};

/// One case. Inputs exist several times over ("sets"), and successive calls use successive sets, so
/// that no call finds its pages in a cache of the processor.
class BenchCase {
 public:
  BenchCase() = default;
  BenchCase(const BenchCase&) = delete;
  BenchCase& operator=(const BenchCase&) = delete;
  virtual ~BenchCase() = default;

  virtual std::int64_t sets() const = 0;
  /// One call on set `i mod sets()`.
  virtual void call(std::int64_t i) = 0;
  /// Mean work of a call. A layer's selections are known only after its first call.
  virtual Work work() const = 0;
  /// Name of the backend that served the last call, of several operators the one that is measured.
  virtual std::string backend() const { return last_backend(); }
};

/// Builds a case; fills the pools with values of the workload's types.
/// \throws Error where the pools cannot hold what the workload writes.
std::unique_ptr<BenchCase> make_case(const Workload& workload, Pools& pools);

std::unique_ptr<BenchCase> make_attend_case(const Workload& workload, Pools& pools);
std::unique_ptr<BenchCase> make_index_case(const Workload& workload, Pools& pools);
std::unique_ptr<BenchCase> make_write_case(const Workload& workload, Pools& pools);
std::unique_ptr<BenchCase> make_layer_case(const Workload& workload, Pools& pools);
std::unique_ptr<BenchCase> make_dense_case(const Workload& workload, Pools& pools);

}  // namespace msa::cli
