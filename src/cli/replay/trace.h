// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// Request traces: what arrives when, how long it is, and which prefixes it shares.

namespace msa::replay {

/// Tokens that one hash of a trace stands for: 4 pages.
inline constexpr std::int64_t group_tokens = 512;
/// Longest context of MiniMax-M3: prompt and output of a request together.
inline constexpr std::int64_t max_context = 1'048'576;

/// One request of a trace.
struct TraceRequest {
  double arrival_ms = 0;           ///< since the trace began; never decreases from line to line
  std::int64_t input_length = 0;   ///< prompt tokens, ≥ 1
  std::int64_t output_length = 0;  ///< generated tokens, ≥ 0
  /// One id per 512 prompt tokens, the last one for the rest; empty where a trace has no hashes.
  std::vector<std::uint64_t> hash_ids;
};

/// Reads a trace, at most `limit` requests (0 = all). Blank lines are skipped. Two formats, told
/// apart by the first line that is not blank:
///  - Mooncake JSON lines: `{"timestamp": ms, "input_length": n, "output_length": n,
///    "hash_ids": [id, …]}` with ceil(input_length / 512) ids; other fields are ignored;
///  - Azure CSV with a header that names `arrival_ms`, `input_length` and `output_length`, in any
///    order; other columns are ignored.
///
/// \throws Error (io) listing the faults as `name:line: field, its value, what is allowed`.
std::vector<TraceRequest> read_trace(std::istream& in, std::string_view name,
                                     std::int64_t limit = 0);

/// The same from a file.
std::vector<TraceRequest> load_trace(const std::string& path, std::int64_t limit = 0);

}  // namespace msa::replay
