// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/io/workload.h"
#include "msa/error.h"

/// Any bytes are either workloads that operators take and that survive being written and read, or a
/// refusal that names the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    for (const msa::cli::Workload& workload : msa::cli::read_workloads(in, "fuzz")) {
      if (!msa::cli::problems(workload).empty()) std::abort();
      std::istringstream again(msa::cli::to_json(workload).dump());
      if (msa::cli::read_workloads(again, "again").front() != workload) std::abort();
    }
  } catch (const msa::Error& error) {
    if (error.failures().empty() || error.failures().front().rfind("fuzz:", 0) != 0) std::abort();
  }
  return 0;
}
