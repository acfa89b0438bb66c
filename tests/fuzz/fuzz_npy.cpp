// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "cli/io/npy.h"
#include "msa/error.h"

/// Any bytes are either an array with a value for each element or a refusal that names the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    const msa::cli::ByteArray array = msa::cli::read_npy(in, "fuzz");
    std::size_t rest = array.values.size();
    bool empty = false;
    for (std::int64_t extent : array.shape) {
      empty = empty || extent == 0;
      if (extent == 0) continue;
      if (rest % static_cast<std::size_t>(extent) != 0) std::abort();
      rest /= static_cast<std::size_t>(extent);
    }
    if (rest != (empty ? 0 : 1)) std::abort();
  } catch (const msa::Error& error) {
    if (error.failures().empty() || error.failures().front().rfind("fuzz:", 0) != 0) std::abort();
  }
  return 0;
}
