// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/c_api.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "api/c_call.h"
#include "msa/layer.h"
#include "msa/page_allocator.h"
#include "serving/c_metadata.h"

/// \file
/// The serving layer's part of the C ABI.

struct msa_metadata_builder {
  msa::MetadataBuilder builder;
};

struct msa_page_allocator {
  std::shared_ptr<msa::PageAllocator> allocator;
};

/// Holds its allocator, so that a host program may drop its handles in any order.
struct msa_page_sequence {
  std::shared_ptr<msa::PageAllocator> allocator;
  msa::PageAllocator::Sequence sequence;
};

namespace msa::c_api {
namespace {

StepInputs convert_step(Reader& reader, const msa_step_inputs* given) {
  const auto c = reader.read(given, "step", msa_step_inputs_init);
  StepInputs step;
  if (c.struct_size > 0 && reader.count("num_requests", c.num_requests)) {
    step.query_start_loc = reader.array("query_start_loc", c.query_start_loc, c.num_requests + 1);
    step.seq_lens_host = reader.array("seq_lens_host", c.seq_lens_host, c.num_requests);
  }
  step.seq_lens = reader.tensor(c.seq_lens, "seq_lens");
  step.block_table = reader.tensor(c.block_table, "block_table");
  step.slot_mapping = reader.tensor(c.slot_mapping, "slot_mapping");
  step.num_actual_tokens = c.num_actual_tokens;
  step.max_seq_len = c.max_seq_len;
  reader.done();
  return step;
}

msa_page_stats counters(const PageAllocator::Stats& stats) {
  msa_page_stats c{};
  c.pages_in_use = stats.pages_in_use;
  c.pages_cached = stats.pages_cached;
  c.pages_free = stats.pages_free;
  c.peak_in_use = stats.peak_in_use;
  c.hits = stats.hits;
  c.misses = stats.misses;
  c.prompt_tokens = stats.prompt_tokens;
  c.cached_tokens = stats.cached_tokens;
  c.evictions = stats.evictions;
  c.duplicates = stats.duplicates;
  c.failures = stats.failures;
  return c;
}

PageAllocator::Request convert_request(Reader& reader, const msa_page_request* given) {
  const auto c = reader.read(given, "request", msa_page_request_init);
  PageAllocator::Request request;
  if (reader.count("num_hashes", c.num_hashes)) {
    request.hashes = reader.array("hashes", c.hashes, c.num_hashes);
  }
  request.prompt_tokens = c.prompt_tokens;
  request.reserve_tokens = c.reserve_tokens;
  return request;
}

}  // namespace

static LayerStepArgs convert(Reader& reader, const msa_layer_step_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_layer_step_args_init);
  LayerStepArgs args;
  if (c.struct_size == 0) return args;
  args.write = convert(reader, c.write, "write");
  args.index = convert(reader, c.index, "index");
  args.attend = convert(reader, c.attend, "attend");
  return args;
}

}  // namespace msa::c_api

using msa::c_api::fill;
using msa::c_api::guarded;
using msa::c_api::Reader;
using msa::c_api::require_pointers;
using msa::c_api::to_c;

extern "C" {

void msa_layer_step_args_init(msa_layer_step_args* args, size_t struct_size) {
  fill(args, struct_size, msa_layer_step_args{});
}

msa_status msa_layer_step(const msa_layer_step_args* args) {
  return msa::c_api::call("layer_step", args, [](const auto& a) { msa::layer_step(a); });
}

msa_status msa_layer_step_workspace_size(const msa_layer_step_args* args, size_t* bytes) {
  return msa::c_api::call_workspace_size("layer_step", args, bytes);
}

void msa_step_inputs_init(msa_step_inputs* step, size_t struct_size) {
  fill(step, struct_size, msa_step_inputs{});
}

msa_status msa_metadata_builder_create(int64_t decode_threshold, msa_metadata_builder** builder) {
  return guarded([&] {
    Reader reader("metadata_builder_create");
    require_pointers(reader, {{"builder", builder}});
    *builder = new msa_metadata_builder{msa::MetadataBuilder(decode_threshold)};
  });
}

void msa_metadata_builder_destroy(msa_metadata_builder* builder) { delete builder; }

msa_status msa_metadata_builder_build(const msa_metadata_builder* builder,
                                      const msa_step_inputs* step, msa_sparse_metadata** metadata) {
  return guarded([&] {
    Reader reader("metadata_builder_build");
    require_pointers(reader, {{"builder", builder}, {"step", step}, {"metadata", metadata}});
    const msa::StepInputs inputs = msa::c_api::convert_step(reader, step);
    *metadata = new msa_sparse_metadata{builder->builder.build(inputs)};
  });
}

msa_status msa_sparse_metadata_batch(const msa_sparse_metadata* metadata, msa_batch* batch) {
  return guarded([&] {
    Reader reader("sparse_metadata_batch");
    require_pointers(reader, {{"metadata", metadata}, {"batch", batch}});
    reader.write(batch, "batch", to_c(metadata->metadata.batch));
  });
}

msa_status msa_sparse_metadata_set_batch(msa_sparse_metadata* metadata, const msa_batch* batch) {
  return guarded([&] {
    Reader reader("sparse_metadata_set_batch");
    require_pointers(reader, {{"metadata", metadata}, {"batch", batch}});
    const msa::BatchMetadata given = reader.batch(batch);
    reader.done();
    metadata->metadata.batch = given;
  });
}

msa_status msa_sparse_metadata_slot_mapping(const msa_sparse_metadata* metadata,
                                            msa_tensor* slot_mapping) {
  return guarded([&] {
    Reader reader("sparse_metadata_slot_mapping");
    require_pointers(reader, {{"metadata", metadata}, {"slot_mapping", slot_mapping}});
    *slot_mapping = to_c(metadata->metadata.slot_mapping);
  });
}

void msa_sparse_metadata_destroy(msa_sparse_metadata* metadata) { delete metadata; }

void msa_page_allocator_config_init(msa_page_allocator_config* config, size_t struct_size) {
  const msa::PageAllocator::Config defaults;
  msa_page_allocator_config c{};
  c.reserve_null_page = defaults.reserve_null_page ? 1 : 0;
  c.pages_per_hash = defaults.pages_per_hash;
  fill(config, struct_size, c);
}

void msa_page_request_init(msa_page_request* request, size_t struct_size) {
  fill(request, struct_size, msa_page_request{});
}

void msa_page_stats_init(msa_page_stats* stats, size_t struct_size) {
  fill(stats, struct_size, msa_page_stats{});
}

msa_status msa_page_allocator_create(const msa_page_allocator_config* config,
                                     msa_page_allocator** allocator) {
  return guarded([&] {
    Reader reader("page_allocator_create");
    require_pointers(reader, {{"config", config}, {"allocator", allocator}});
    const auto c = reader.read(config, "config", msa_page_allocator_config_init);
    reader.done();
    *allocator = new msa_page_allocator{std::make_shared<msa::PageAllocator>(
        msa::PageAllocator::Config{.pages = c.pages,
                                   .reserve_null_page = c.reserve_null_page != 0,
                                   .pages_per_hash = c.pages_per_hash})};
  });
}

void msa_page_allocator_destroy(msa_page_allocator* allocator) { delete allocator; }

msa_status msa_page_allocator_begin(msa_page_allocator* allocator, const msa_page_request* request,
                                    msa_page_sequence** sequence) {
  return guarded([&] {
    Reader reader("page_allocator_begin");
    require_pointers(reader,
                     {{"allocator", allocator}, {"request", request}, {"sequence", sequence}});
    const auto wanted = msa::c_api::convert_request(reader, request);
    reader.done();
    auto begun = std::make_unique<msa_page_sequence>();
    begun->allocator = allocator->allocator;
    std::optional<msa::PageAllocator::Sequence> pages = allocator->allocator->begin(wanted);
    if (pages) begun->sequence = std::move(*pages);
    *sequence = pages ? begun.release() : nullptr;
  });
}

msa_status msa_page_allocator_drop_cached(msa_page_allocator* allocator) {
  return guarded([&] {
    Reader reader("page_allocator_drop_cached");
    require_pointers(reader, {{"allocator", allocator}});
    allocator->allocator->drop_cached();
  });
}

msa_status msa_page_allocator_available(const msa_page_allocator* allocator, int64_t* pages) {
  return guarded([&] {
    Reader reader("page_allocator_available");
    require_pointers(reader, {{"allocator", allocator}, {"pages", pages}});
    *pages = allocator->allocator->available();
  });
}

msa_status msa_page_allocator_references(const msa_page_allocator* allocator, int32_t page,
                                         int64_t* sequences) {
  return guarded([&] {
    Reader reader("page_allocator_references");
    require_pointers(reader, {{"allocator", allocator}, {"sequences", sequences}});
    *sequences = allocator->allocator->references(page);
  });
}

msa_status msa_page_allocator_published(const msa_page_allocator* allocator, uint64_t hash,
                                        int32_t* published) {
  return guarded([&] {
    Reader reader("page_allocator_published");
    require_pointers(reader, {{"allocator", allocator}, {"published", published}});
    *published = allocator->allocator->published(hash) ? 1 : 0;
  });
}

msa_status msa_page_allocator_stats(const msa_page_allocator* allocator, msa_page_stats* stats) {
  return guarded([&] {
    Reader reader("page_allocator_stats");
    require_pointers(reader, {{"allocator", allocator}, {"stats", stats}});
    reader.write(stats, "stats", msa::c_api::counters(allocator->allocator->stats()));
  });
}

msa_status msa_page_allocator_reset_stats(msa_page_allocator* allocator) {
  return guarded([&] {
    Reader reader("page_allocator_reset_stats");
    require_pointers(reader, {{"allocator", allocator}});
    allocator->allocator->reset_stats();
  });
}

msa_status msa_page_sequence_grow(msa_page_sequence* sequence, int64_t tokens, int32_t* grown) {
  return guarded([&] {
    Reader reader("page_sequence_grow");
    require_pointers(reader, {{"sequence", sequence}, {"grown", grown}});
    *grown = sequence->allocator->grow(sequence->sequence, tokens) ? 1 : 0;
  });
}

msa_status msa_page_sequence_publish(msa_page_sequence* sequence, int64_t computed_tokens) {
  return guarded([&] {
    Reader reader("page_sequence_publish");
    require_pointers(reader, {{"sequence", sequence}});
    sequence->allocator->publish(sequence->sequence, computed_tokens);
  });
}

msa_status msa_page_sequence_pages(const msa_page_sequence* sequence, const int32_t** pages,
                                   int64_t* count) {
  return guarded([&] {
    Reader reader("page_sequence_pages");
    require_pointers(reader, {{"sequence", sequence}, {"pages", pages}, {"count", count}});
    const std::span<const std::int32_t> held = sequence->sequence.pages();
    *pages = held.data();
    *count = static_cast<std::int64_t>(held.size());
  });
}

msa_status msa_page_sequence_cached_tokens(const msa_page_sequence* sequence, int64_t* tokens) {
  return guarded([&] {
    Reader reader("page_sequence_cached_tokens");
    require_pointers(reader, {{"sequence", sequence}, {"tokens", tokens}});
    *tokens = sequence->sequence.cached_tokens();
  });
}

void msa_page_sequence_destroy(msa_page_sequence* sequence) { delete sequence; }

}  // extern "C"
