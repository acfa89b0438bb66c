// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/io/workload.h"

/// \file
/// Which workloads `msa bench` measures.

namespace msa::cli {

/// Shapes from the command line. Each list that is not empty replaces the value of every workload
/// of the grid, once for each of its entries.
struct ShapeOptions {
  std::vector<std::string> shard;   ///< "16/1"
  std::vector<std::string> kv;      ///< "bf16"
  std::vector<std::string> layout;  ///< "LBNHC"
  std::vector<std::int64_t> m;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> batch;
  std::vector<std::int64_t> context;
  std::vector<double> keep;
  std::vector<std::uint64_t> seed;
  bool dense = false;  ///< decode and decode layers attend to all visible blocks

  bool any() const;
};

/// The default grid: every operator, at sizes that two cores finish in about a minute.
std::vector<Workload> default_grid();

/// The workloads of `op` ("all" = every one), in the given shapes, each once.
/// \throws Error naming a shape that no operator takes, or none of the operators asked for.
std::vector<Workload> shaped(const std::vector<Workload>& grid, const std::string& op,
                             const ShapeOptions& options);

}  // namespace msa::cli
