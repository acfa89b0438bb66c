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
  Checker check("layer_step");
  const auto same = [&](const char* argument, std::int64_t tokens) {
    check.require(tokens == args.write.num_tokens, argument, "is ", tokens, "; expected ",
                  check.shown("write.num_tokens"), " = ", args.write.num_tokens);
  };
  same("index.batch.num_actual_tokens", args.index.batch.num_actual_tokens);
  same("attend.batch.num_actual_tokens", args.attend.batch.num_actual_tokens);
  return check.failures();
}

/// Which of the three a tensor takes part in.
enum Part : unsigned { in_write = 1, in_index = 2, in_attend = 4 };

struct StepRegion {
  Region region;
  unsigned read_by;
  unsigned written_by;
};

/// Every tensor of a step once; what a call takes from an earlier one is named where it comes from.
std::vector<StepRegion> regions_of(const LayerStepArgs& args) {
  const WriteCacheArgs& w = args.write;
  std::vector<StepRegion> regions = {
      {{"write.q_out", w.q_out}, in_attend, in_write},
      {{"write.kv_cache", w.kv_cache.packed}, in_attend, in_write},
      {{"write.k_cache", w.kv_cache.k}, in_attend, in_write},
      {{"write.v_cache", w.kv_cache.v}, in_attend, in_write},
      {{"write.index_q_out", w.index_q_out}, in_index, in_write},
      {{"write.index_cache", w.index_cache}, in_index, in_write},
      {{"index.selection", args.index.selection}, in_attend, in_index},
      {{"attend.out", args.attend.out}, 0, in_attend},
      {{"attend.lse", args.attend.lse}, 0, in_attend},
      {{"index.workspace", memory_of(args.index.workspace)}, 0, in_index | in_attend},
      {{"write.qkv", w.qkv}, in_write, 0},
      {{"write.positions", w.positions}, in_write, 0},
      {{"write.cos_sin", w.cos_sin}, in_write, 0},
      {{"write.q_norm", w.q_norm}, in_write, 0},
      {{"write.k_norm", w.k_norm}, in_write, 0},
      {{"write.index_q_norm", w.index_q_norm}, in_write, 0},
      {{"write.index_k_norm", w.index_k_norm}, in_write, 0},
      {{"write.slot_mapping", w.slot_mapping}, in_write, 0},
      {{"write.index_slot_mapping", w.index_slot_mapping}, in_write, 0},
      {{"write.k_scale", w.k_scale.tensor}, in_write | in_attend, 0},
      {{"write.v_scale", w.v_scale.tensor}, in_write | in_attend, 0}};
  const BatchMetadata& index = args.index.batch;
  const BatchMetadata& attend = args.attend.batch;
  regions.insert(regions.end(),
                 {{{"index.batch.seq_lens", index.seq_lens}, in_index, 0},
                  {{"index.batch.block_table", index.block_table}, in_index, 0},
                  {{"index.batch.cu_seqlens_q", index.cu_seqlens_q}, in_index, 0},
                  {{"index.batch.context_lens", index.context_lens}, in_index, 0},
                  {{"attend.batch.seq_lens", attend.seq_lens}, in_attend, 0},
                  {{"attend.batch.block_table", attend.block_table}, in_attend, 0},
                  {{"attend.batch.cu_seqlens_q", attend.cu_seqlens_q}, in_attend, 0},
                  {{"attend.batch.context_lens", attend.context_lens}, in_attend, 0}});
  return regions;
}

/// What one of the three writes must be apart from all that the others touch: q_out over a block
/// table would be read as one by the next call. Pairs that meet in one call are that call's to
/// compare.
std::vector<std::string> overlap_failures(const LayerStepArgs& args) {
  Checker check("layer_step");
  const std::vector<StepRegion> regions = regions_of(args);
  for (auto a = regions.begin(); a != regions.end() && a->written_by != 0; ++a) {
    std::vector<Region> others;
    for (auto b = a + 1; b != regions.end(); ++b) {
      const unsigned compared =
          (a->written_by & (b->read_by | b->written_by)) | (b->written_by & a->read_by);
      if (compared == 0) others.push_back(b->region);
    }
    check.disjoint(a->region, others);
  }
  return check.failures();
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
  Checker check("layer_step");
  check.fail("attend.batch.max_seq_len",
             cat("is ", bound, ", ", blocks(bound), " blocks; allowed: at least the ",
                 blocks(longest), " blocks of the longest request in ", check.shown("index.batch"),
                 ", all of which the selection may name"));
  return check.failures();
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
  const std::vector<std::string> overlaps = overlap_failures(args);
  failures.insert(failures.end(), overlaps.begin(), overlaps.end());
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

void layer_step(const LayerStepArgs& args, WorkspaceSource& source) {
  const LayerStepArgs step = chained(args);
  std::size_t bytes = 0;
  const auto add = [&](const auto& part) {
    try {
      bytes = std::max(bytes, workspace_size(part));
    } catch (const Error&) {  // The call says it, beside all else that is wrong.
    }
  };
  add(step.index);
  add(step.attend);
  LayerStepArgs with_workspace = args;
  with_workspace.index.workspace = source.find(bytes);
  layer_step(with_workspace);
}

std::size_t workspace_size(const LayerStepArgs& args) {
  const LayerStepArgs step = chained(args);
  return std::max(workspace_size(step.index), workspace_size(step.attend));
}

}  // namespace msa
