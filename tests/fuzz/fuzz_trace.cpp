// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "cli/replay/trace.h"
#include "msa/error.h"

/// Any bytes are either a trace that keeps its promises or a refusal with words.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    double earlier = 0;
    for (const msa::replay::TraceRequest& r : msa::replay::read_trace(in, "fuzz")) {
      const std::int64_t groups =
          (r.input_length + msa::replay::group_tokens - 1) / msa::replay::group_tokens;
      const bool ok = r.arrival_ms >= earlier && r.input_length >= 1 && r.output_length >= 0 &&
                      r.input_length + r.output_length <= msa::replay::max_context &&
                      (r.hash_ids.empty() || r.hash_ids.size() == static_cast<std::size_t>(groups));
      if (!ok) std::abort();
      earlier = r.arrival_ms;
    }
  } catch (const msa::Error& error) {
    if (error.failures().empty() || error.failures().front().empty()) std::abort();
  }
  return 0;
}
