// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api/dispatch.h"
#include "msa/layer.h"

namespace msa {
namespace {

/// The three calls with what each takes from an earlier one.
LayerStepArgs chained(LayerStepArgs args) {
  args.index.index_q = args.write.index_q_out;
  args.index.index_cache = args.write.index_cache;
  args.index.stream = args.write.stream;
  args.attend.q = args.write.q_out;
  args.attend.kv_cache = args.write.kv_cache;
  args.attend.k_scale = args.write.k_scale;
  args.attend.v_scale = args.write.v_scale;
  args.attend.selection = args.index.selection;
  args.attend.workspace = args.index.workspace;
  args.attend.stream = args.write.stream;
  return args;
}

/// One number of tokens for all three.
std::vector<std::string> token_failures(const LayerStepArgs& args) {
  std::vector<std::string> failures;
  const auto same = [&](const char* argument, std::int64_t tokens) {
    if (tokens == args.write.num_tokens) return;
    failures.push_back(cat("layer_step: argument '", argument, "' is ", tokens,
                           "; expected write.num_tokens = ", args.write.num_tokens));
  };
  same("index.batch.num_actual_tokens", args.index.batch.num_actual_tokens);
  same("attend.batch.num_actual_tokens", args.attend.batch.num_actual_tokens);
  return failures;
}

/// MSA_CHECK=1: attend would refuse a selection with blocks past its bound, after the cache was
/// written; index_blocks may choose any block of its requests.
std::vector<std::string> bound_failures(const LayerStepArgs& args) {
  const BatchMetadata& batch = args.index.batch;
  if (!metadata_checks_enabled()) return {};
  HostReader host = host_reader("index_blocks", args.index);
  if (!host.reads(batch.seq_lens.device)) return {};
  const ConstTensor lengths = host.read(batch.seq_lens, batch.num_requests());
  const auto blocks = [](std::int64_t keys) { return (keys + page_size - 1) / page_size; };
  std::int64_t longest = 0;
  for (std::int64_t r = 0; r < batch.num_requests(); ++r) {
    longest = std::max<std::int64_t>(longest, lengths.ptr<std::int32_t>()[r]);
  }
  const std::int64_t bound = args.attend.batch.max_seq_len;
  if (blocks(longest) <= blocks(bound)) return {};
  return {
      cat("layer_step: argument 'attend.batch.max_seq_len' is ", bound, ", ", blocks(bound),
          " blocks; allowed: at least the ", blocks(longest),
          " blocks of the longest request in index.batch, all of which the selection may name")};
}

/// Every failure of all three, before the first of them writes.
void check_step(const LayerStepArgs& args) {
  std::vector<std::string> failures = token_failures(args);
  ErrorCode code = ErrorCode::invalid_argument;
  const auto collect = [&](const auto& call) {
    try {
      check_call(call);
    } catch (const Error& error) {
      if (failures.empty()) code = error.code();
      for (const std::string& failure : error.failures()) {
        // A wrong switch is every operator's.
        if (std::find(failures.begin(), failures.end(), failure) == failures.end()) {
          failures.push_back(failure);
        }
      }
    }
  };
  collect(args.write);
  collect(args.index);
  collect(args.attend);
  if (failures.empty()) failures = bound_failures(args);
  if (!failures.empty()) throw Error(code, std::move(failures));
}

}  // namespace

void layer_step(const LayerStepArgs& args) {
  const LayerStepArgs step = chained(args);
  check_step(step);
  write_cache(step.write);
  index_blocks(step.index);
  attend(step.attend);
}

std::size_t workspace_size(const LayerStepArgs& args) {
  const LayerStepArgs step = chained(args);
  return std::max(workspace_size(step.index), workspace_size(step.attend));
}

}  // namespace msa
