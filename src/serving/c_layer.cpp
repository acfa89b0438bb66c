// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/c_call.h"
#include "msa/c_api.h"
#include "msa/layer.h"
#include "serving/c_metadata.h"

/// \file
/// The engine's side of the C ABI: layouts, the backend's answers and the forward calls.

struct msa_indexer {
  msa::Indexer indexer;
};

struct msa_sparse_impl {
  msa::SparseImpl impl;
};

namespace msa::c_api {
namespace {

/// One user's layouts; nothing = any.
std::optional<std::vector<KVLayout>> read_layouts(Reader& reader, const msa_kv_layout_list& given,
                                                  const std::string& name) {
  if (given.count == MSA_ANY_KV_LAYOUT) return std::nullopt;
  std::vector<KVLayout> layouts;
  if (given.count < 0) {
    reader.fail(name + ".count", cat("is ", given.count, "; allowed: 0 or more, or ",
                                     MSA_ANY_KV_LAYOUT, ", any layout"));
  }
  for (msa_kv_layout layout : reader.array(name + ".layouts", given.layouts, given.count)) {
    if (layout < MSA_LBHNC || layout > MSA_BHLNC) {
      reader.fail(name + ".layouts",
                  cat("holds ", layout, "; allowed: MSA_LBHNC to MSA_BHLNC, 0 to 5"));
    }
    layouts.push_back(static_cast<KVLayout>(layout));
  }
  return layouts;
}

void write_layouts(Reader& reader, const std::vector<KVLayout>& found, msa_kv_layout* layouts,
                   std::int64_t capacity, std::int64_t* count) {
  std::vector<msa_kv_layout> c;
  c.reserve(found.size());
  for (KVLayout layout : found) c.push_back(static_cast<msa_kv_layout>(layout));
  reader.write_array("layouts", std::span<const msa_kv_layout>(c), layouts, capacity, count);
}

/// What both forward calls are given: a layer and its step. Calls look at it where it lies.
class Pass {
 public:
  Pass(Reader& reader, const msa_layer_context* layer, const msa_forward_context* context) {
    read_layer(reader, layer);
    read_context(reader, context);
  }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  const LayerContext& layer() const { return layer_; }
  const ForwardContext& context() const { return context_; }

 private:
  void read_layer(Reader& reader, const msa_layer_context* given) {
    const auto c = reader.read(given, "layer", msa_layer_context_init);
    if (c.struct_size > 0 && c.name == nullptr) reader.fail("layer.name", "is null");
    layer_.name = c.name != nullptr ? c.name : "";
    layer_.topk_indices = reader.tensor(c.topk_indices, "topk_indices");
    layer_.k_scale = reader.scale(c.k_scale, "k_scale");
    layer_.v_scale = reader.scale(c.v_scale, "v_scale");
  }

  void read_context(Reader& reader, const msa_forward_context* given) {
    const auto c = reader.read(given, "context", msa_forward_context_init);
    context_.workspace_cap = c.workspace_cap;
    context_.workspace = from_c(c.workspace);
    context_.stream.handle = c.stream;
    if (!reader.count("num_metadata", c.num_metadata)) return;
    read_metadata(reader, reader.array("metadata", c.metadata, c.num_metadata));
    if (c.metadata != nullptr) context_.metadata = &metadata_;
  }

  /// A call looks up one layer; the others are copied only where it is missing, to be named.
  void read_metadata(Reader& reader, std::span<const msa_layer_metadata> entries) {
    const msa_layer_metadata* own = nullptr;
    for (const msa_layer_metadata& entry : entries) {
      const auto require = [&](const void* pointer, const char* field) {
        if (pointer == nullptr) {
          reader.fail(cat("metadata[", &entry - entries.data(), "].", field), "is null");
        }
      };
      require(entry.layer, "layer");
      require(entry.metadata, "metadata");
      if (own == nullptr && entry.layer != nullptr && layer_.name == entry.layer) own = &entry;
    }
    reader.done();
    if (own != nullptr) entries = {own, 1};
    for (const msa_layer_metadata& entry : entries) {
      metadata_.emplace(entry.layer, entry.metadata->metadata);
    }
  }

  LayerContext layer_;
  std::map<std::string, SparseMetadata> metadata_;
  ForwardContext context_;
};

/// Reads the arguments of Indexer's calls and hands them to `run`.
template <class Run>
void with_indexer(Reader& reader, const msa_indexer* indexer, const msa_indexer_forward_args* args,
                  Run&& run) {
  if (indexer == nullptr) reader.fail("indexer", "is null");
  const auto c = reader.read(args, "args", msa_indexer_forward_args_init);
  if (c.struct_size == 0) reader.done();
  const Tensor index_q = reader.tensor(c.index_q, "index_q");
  const Tensor index_cache = reader.tensor(c.index_cache, "index_cache");
  const Tensor table = reader.tensor(c.index_block_table, "index_block_table");
  const Pass pass(reader, c.layer, c.context);
  reader.done();
  run(indexer->indexer, pass.layer(), index_q, index_cache, table, pass.context());
}

/// Reads the arguments of SparseImpl's calls and hands them to `run`.
template <class Run>
void with_impl(Reader& reader, const msa_sparse_impl* impl, const msa_sparse_forward_args* args,
               Run&& run) {
  if (impl == nullptr) reader.fail("impl", "is null");
  const auto c = reader.read(args, "args", msa_sparse_forward_args_init);
  if (c.struct_size == 0) reader.done();
  const Tensor query = reader.tensor(c.query, "query");
  const Tensor kv_cache = reader.tensor(c.kv_cache, "kv_cache");
  const Tensor output = reader.tensor(c.output, "output");
  const Pass pass(reader, c.layer, c.context);
  reader.done();
  run(impl->impl, pass.layer(), query, kv_cache, output, pass.context());
}

}  // namespace
}  // namespace msa::c_api

using msa::cat;
using msa::c_api::fill;
using msa::c_api::guarded;
using msa::c_api::Reader;
using msa::c_api::require_pointers;
using msa::c_api::to_c;
using msa::c_api::with_impl;
using msa::c_api::with_indexer;

extern "C" {

msa_status msa_negotiate_layouts(const msa_kv_layout_list* users, int64_t num_users,
                                 msa_kv_layout* layouts, int64_t capacity, int64_t* count) {
  return guarded([&] {
    Reader reader("negotiate_layouts");
    std::vector<std::optional<std::vector<msa::KVLayout>>> lists;
    if (reader.count("num_users", num_users)) {
      for (const msa_kv_layout_list& user : reader.array("users", users, num_users)) {
        const std::string name = cat("users[", lists.size(), "]");
        lists.push_back(msa::c_api::read_layouts(reader, user, name));
      }
    }
    // Of wrong lists nothing is negotiated: write_layouts refuses them with what else is wrong.
    msa::c_api::write_layouts(reader, msa::negotiate_layouts(lists), layouts, capacity, count);
  });
}

const char* msa_sparse_backend_name(void) { return msa::SparseBackend::name(); }

msa_status msa_sparse_backend_supported_kv_cache_layouts(int32_t arch, msa_kv_layout* layouts,
                                                         int64_t capacity, int64_t* count) {
  return guarded([&] {
    Reader reader("sparse_backend_supported_kv_cache_layouts");
    msa::c_api::write_layouts(reader, msa::SparseBackend::supported_kv_cache_layouts(arch), layouts,
                              capacity, count);
  });
}

msa_status msa_sparse_backend_supports_kv_cache_dtype(const char* dtype, int32_t* supported) {
  return guarded([&] {
    Reader reader("sparse_backend_supports_kv_cache_dtype");
    require_pointers(reader, {{"dtype", dtype}, {"supported", supported}});
    *supported = msa::SparseBackend::supports_kv_cache_dtype(dtype) ? 1 : 0;
  });
}

msa_status msa_sparse_backend_supported_block_sizes(int64_t* sizes, int64_t capacity,
                                                    int64_t* count) {
  return guarded([&] {
    Reader reader("sparse_backend_supported_block_sizes");
    const std::vector<int> all = msa::SparseBackend::supported_block_sizes();
    const std::vector<std::int64_t> wide(all.begin(), all.end());
    reader.write_array("sizes", std::span<const std::int64_t>(wide), sizes, capacity, count);
  });
}

msa_status msa_sparse_backend_check_block_size(int64_t block_size) {
  return guarded([&] { msa::SparseBackend::check_block_size(block_size); });
}

msa_status msa_sparse_backend_kv_cache_shape(int64_t pages, int64_t kv_heads, int64_t* shape) {
  return guarded([&] {
    Reader reader("sparse_backend_kv_cache_shape");
    if (pages < 0) reader.fail("pages", cat("is ", pages, "; allowed: 0 or more"));
    if (kv_heads < 1) reader.fail("kv_heads", cat("is ", kv_heads, "; allowed: 1 or more"));
    require_pointers(reader, {{"shape", shape}});
    const auto extents = msa::SparseBackend::kv_cache_shape(pages, kv_heads);
    std::copy(extents.begin(), extents.end(), shape);
  });
}

void msa_layer_context_init(msa_layer_context* layer, size_t struct_size) {
  const msa::LayerContext defaults;
  msa_layer_context c{};
  c.name = "";
  c.k_scale = to_c(defaults.k_scale);
  c.v_scale = to_c(defaults.v_scale);
  fill(layer, struct_size, c);
}

void msa_forward_context_init(msa_forward_context* context, size_t struct_size) {
  msa_forward_context c{};
  c.workspace_cap = msa::ForwardContext{}.workspace_cap;
  fill(context, struct_size, c);
}

void msa_indexer_config_init(msa_indexer_config* config, size_t struct_size) {
  const msa::Indexer::Config defaults;
  msa_indexer_config c{};
  c.num_index_heads = defaults.num_index_heads;
  c.topk = defaults.topk;
  c.rule = to_c(defaults.rule);
  c.exact = defaults.exact ? 1 : 0;
  fill(config, struct_size, c);
}

void msa_indexer_forward_args_init(msa_indexer_forward_args* args, size_t struct_size) {
  fill(args, struct_size, msa_indexer_forward_args{});
}

msa_status msa_indexer_create(const msa_indexer_config* config, msa_indexer** indexer) {
  return guarded([&] {
    Reader reader("indexer_create");
    require_pointers(reader, {{"config", config}, {"indexer", indexer}});
    const auto c = reader.read(config, "config", msa_indexer_config_init);
    reader.done();
    *indexer =
        new msa_indexer{msa::Indexer(msa::Indexer::Config{.num_index_heads = c.num_index_heads,
                                                          .topk = c.topk,
                                                          .rule = msa::c_api::from_c(c.rule),
                                                          .exact = c.exact != 0})};
  });
}

void msa_indexer_destroy(msa_indexer* indexer) { delete indexer; }

msa_status msa_indexer_buffer_rows(int64_t max_tokens, int64_t* rows) {
  return guarded([&] {
    Reader reader("indexer_buffer_rows");
    reader.count("max_tokens", max_tokens);
    require_pointers(reader, {{"rows", rows}});
    *rows = msa::Indexer::buffer_rows(max_tokens);
  });
}

msa_status msa_indexer_forward(const msa_indexer* indexer, const msa_indexer_forward_args* args) {
  return guarded([&] {
    Reader reader("indexer_forward");
    with_indexer(reader, indexer, args,
                 [](const msa::Indexer& i, const auto&... a) { i.forward(a...); });
  });
}

msa_status msa_indexer_workspace_size(const msa_indexer* indexer,
                                      const msa_indexer_forward_args* args, size_t* bytes) {
  return guarded([&] {
    Reader reader("indexer_workspace_size");
    if (bytes == nullptr) reader.fail("bytes", "is null");
    with_indexer(reader, indexer, args, [bytes](const msa::Indexer& i, const auto&... a) {
      *bytes = i.workspace_size(a...);
    });
  });
}

void msa_sparse_impl_config_init(msa_sparse_impl_config* config, size_t struct_size) {
  const msa::SparseImpl::Config defaults;
  msa_sparse_impl_config c{};
  c.num_heads = defaults.num_heads;
  c.num_kv_heads = defaults.num_kv_heads;
  c.scale = defaults.scale;
  c.kv_cache_dtype = static_cast<msa_dtype>(defaults.kv_cache_dtype);
  c.invariant = defaults.invariant ? 1 : 0;
  fill(config, struct_size, c);
}

void msa_sparse_forward_args_init(msa_sparse_forward_args* args, size_t struct_size) {
  fill(args, struct_size, msa_sparse_forward_args{});
}

msa_status msa_sparse_impl_create(const msa_sparse_impl_config* config, msa_sparse_impl** impl) {
  return guarded([&] {
    Reader reader("sparse_impl_create");
    require_pointers(reader, {{"config", config}, {"impl", impl}});
    const auto c = reader.read(config, "config", msa_sparse_impl_config_init);
    reader.done();
    *impl = new msa_sparse_impl{msa::SparseImpl(
        msa::SparseImpl::Config{.num_heads = c.num_heads,
                                .num_kv_heads = c.num_kv_heads,
                                .scale = c.scale,
                                .kv_cache_dtype = static_cast<msa::DType>(c.kv_cache_dtype),
                                .invariant = c.invariant != 0})};
  });
}

void msa_sparse_impl_destroy(msa_sparse_impl* impl) { delete impl; }

msa_status msa_sparse_impl_forward(const msa_sparse_impl* impl,
                                   const msa_sparse_forward_args* args) {
  return guarded([&] {
    Reader reader("sparse_impl_forward");
    with_impl(reader, impl, args,
              [](const msa::SparseImpl& i, const auto&... a) { i.forward(a...); });
  });
}

msa_status msa_sparse_impl_workspace_size(const msa_sparse_impl* impl,
                                          const msa_sparse_forward_args* args, size_t* bytes) {
  return guarded([&] {
    Reader reader("sparse_impl_workspace_size");
    if (bytes == nullptr) reader.fail("bytes", "is null");
    with_impl(reader, impl, args, [bytes](const msa::SparseImpl& i, const auto&... a) {
      *bytes = i.workspace_size(a...);
    });
  });
}

}  // extern "C"
