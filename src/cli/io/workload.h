// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "msa/kv_cache.h"
#include "msa/types.h"

/// \file
/// Benchmark shapes, and files of them: JSON lines, one object a line (docs/workloads.md).

namespace msa::cli {

/// The version that this program reads; each line may name it.
inline constexpr int workload_version = 1;

enum class WorkloadOp { decode, prefill, index, write, layer };

const char* name(WorkloadOp op);
std::optional<WorkloadOp> parse_workload_op(std::string_view text);

/// One call of one operator, repeated. Either `m` (decode requests of m tokens each) or `tokens`
/// (prefill requests of that many tokens each) is above zero; a write has `tokens` alone.
struct Workload {
  WorkloadOp op = WorkloadOp::decode;
  std::int64_t hq = 16;
  std::int64_t hkv = 1;  ///< index heads too
  DType kv = DType::bf16;
  KVLayout layout = KVLayout::LBHNC;
  std::int64_t m = 0;
  std::int64_t tokens = 0;
  std::int64_t batch = 1;    ///< requests
  std::int64_t context = 0;  ///< decode: keys of a request; prefill: keys before its first token
  std::int64_t keep = 900;   ///< permille of blocks that survive from token to token
  std::uint64_t seed = 11;
  /// prefill: block ids of an .npy file [tokens, heads, topk], from its first row on; "": generated
  std::string selection = {};
  bool dense = false;  ///< decode, layer: rows attend to all visible blocks, without an index

  bool is_decode() const { return m > 0; }
  /// Whether `dense` has a meaning.
  bool may_be_dense() const {
    return op == WorkloadOp::decode || (op == WorkloadOp::layer && is_decode());
  }
  std::int64_t rows() const { return batch * (is_decode() ? m : tokens); }
  /// Keys of a request, the call's own tokens included.
  std::int64_t seq_len() const { return is_decode() ? context : context + tokens; }

  friend bool operator==(const Workload&, const Workload&) = default;
};

/// "decode 16/1 bf16 LBHNC m 1 batch 8 context 131072 seed 11": what a table prints and what
/// reports are matched by.
std::string label(const Workload& workload);

/// What is wrong with the workload; empty = nothing.
std::vector<std::string> problems(const Workload& workload);

nlohmann::ordered_json to_json(const Workload& workload);

/// Reads a stream of JSON lines; empty lines are skipped. `label` stands for the file in messages.
/// \throws Error (io) that lists what is wrong, with line numbers.
std::vector<Workload> read_workloads(std::istream& stream, const std::string& label);
std::vector<Workload> read_workloads(const std::string& path);

}  // namespace msa::cli
