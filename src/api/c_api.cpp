// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/c_api.h"

#include <cstdint>
#include <exception>
#include <new>
#include <string>

#include "api/c_call.h"
#include "api/check.h"
#include "msa/device.h"
#include "msa/error.h"
#include "msa/kv_cache.h"

namespace {

/// The calling thread's last error. `shown` may also be a literal: where no memory is left, none is
/// needed to say so.
struct LastError {
  std::string text;
  const char* shown = "";
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

msa_status failed(msa_status status, const char* text) noexcept {
  LastError& error = last_error();
  try {
    error.text = text;
    error.shown = error.text.c_str();
  } catch (const std::exception&) {
    error.shown = "out of memory while an error was reported";
  }
  return status;
}

}  // namespace

namespace msa::c_api {

void clear_error() noexcept { last_error().shown = ""; }

msa_status record_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return failed(static_cast<msa_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    last_error().shown = "out of memory";
    return MSA_ERROR_INTERNAL;
  } catch (const std::exception& error) {
    return failed(MSA_ERROR_INTERNAL, error.what());
  } catch (...) {
    return failed(MSA_ERROR_INTERNAL, "an unknown exception");
  }
}

void require_pointers(Reader& reader, std::initializer_list<Named> pointers) {
  for (const Named& given : pointers) {
    if (given.pointer == nullptr) reader.fail(given.name, "is null");
  }
  reader.done();
}

}  // namespace msa::c_api

namespace {

using msa::cat;
using msa::c_api::call;
using msa::c_api::call_workspace_size;
using msa::c_api::guarded;
using msa::c_api::Reader;
using msa::c_api::require_pointers;

/// True where a cache of this shape can be addressed with 64-bit byte offsets.
bool addressable(const msa_kv_cache_shape& shape) {
  std::int64_t bytes = std::int64_t{msa::page_size} * 2 * msa::head_dim * 4;
  return !__builtin_mul_overflow(bytes, shape.layers, &bytes) &&
         !__builtin_mul_overflow(bytes, shape.pages, &bytes) &&
         !__builtin_mul_overflow(bytes, shape.heads, &bytes);
}

void check_dtype(Reader& reader, msa_dtype dtype) {
  if (msa::size_of(static_cast<msa::DType>(dtype)) == 0) {
    reader.fail("dtype", cat("is ", dtype, "; allowed: MSA_F32 to MSA_U8"));
  }
}

void check_layer_view(Reader& reader, msa_dtype dtype, msa_kv_layout layout,
                      const msa_kv_cache_shape& shape, std::int64_t layer) {
  const auto require = [&](bool ok, const char* argument, std::int64_t value, const char* allowed) {
    if (!ok) reader.fail(argument, cat("is ", value, "; allowed: ", allowed));
  };
  check_dtype(reader, dtype);
  require(layout >= MSA_LBHNC && layout <= MSA_BHLNC, "layout", layout, "MSA_LBHNC to MSA_BHLNC");
  require(shape.layers >= 1, "layers", shape.layers, "1 or more");
  require(shape.pages >= 0, "pages", shape.pages, "0 or more");
  require(shape.heads >= 1, "heads", shape.heads, "1 or more");
  require(layer >= 0 && layer < shape.layers, "layer", layer, "0 to layers - 1");
  reader.done();
  if (!addressable(shape)) {
    reader.fail("shape", cat("has layers ", shape.layers, ", pages ", shape.pages, ", heads ",
                             shape.heads, "; allowed: less than 2^63 bytes in all"));
    reader.done();
  }
}

}  // namespace

extern "C" {

msa_status msa_write_cache(const msa_write_cache_args* args) {
  return call("write_cache", args, [](const auto& a) { msa::write_cache(a); });
}

msa_status msa_insert_cache(const msa_insert_cache_args* args) {
  return call("insert_cache", args, [](const auto& a) { msa::insert_cache(a); });
}

msa_status msa_copy_pages(const msa_copy_pages_args* args) {
  return call("copy_pages", args, [](const auto& a) { msa::copy_pages(a); });
}

msa_status msa_index_blocks(const msa_index_blocks_args* args) {
  return call("index_blocks", args, [](const auto& a) { msa::index_blocks(a); });
}

msa_status msa_index_scores(const msa_index_scores_args* args) {
  return call("index_scores", args, [](const auto& a) { msa::index_scores(a); });
}

msa_status msa_select_blocks(const msa_select_blocks_args* args) {
  return call("select_blocks", args, [](const auto& a) { msa::select_blocks(a); });
}

msa_status msa_attend(const msa_attend_args* args) {
  return call("attend", args, [](const auto& a) { msa::attend(a); });
}

msa_status msa_merge_states(const msa_merge_states_args* args) {
  return call("merge_states", args, [](const auto& a) { msa::merge_states(a); });
}

msa_status msa_index_blocks_workspace_size(const msa_index_blocks_args* args, size_t* bytes) {
  return call_workspace_size("index_blocks", args, bytes);
}

msa_status msa_index_scores_workspace_size(const msa_index_scores_args* args, size_t* bytes) {
  return call_workspace_size("index_scores", args, bytes);
}

msa_status msa_select_blocks_workspace_size(const msa_select_blocks_args* args, size_t* bytes) {
  return call_workspace_size("select_blocks", args, bytes);
}

msa_status msa_attend_workspace_size(const msa_attend_args* args, size_t* bytes) {
  return call_workspace_size("attend", args, bytes);
}

const char* msa_last_error(void) { return last_error().shown; }
const char* msa_last_backend(void) { return msa::last_backend(); }
const char* msa_version(void) { return msa::version(); }

const char* msa_status_name(msa_status status) {
  return status == MSA_OK ? "ok" : msa::name(static_cast<msa::ErrorCode>(status));
}

const char* msa_dtype_name(msa_dtype dtype) { return msa::name(static_cast<msa::DType>(dtype)); }

const char* msa_kv_layout_name(msa_kv_layout layout) {
  return msa::name(static_cast<msa::KVLayout>(layout));
}

msa_status msa_parse_dtype(const char* text, msa_dtype* dtype) {
  return guarded([&] {
    Reader reader("parse_dtype");
    require_pointers(reader, {{"text", text}, {"dtype", dtype}});
    const auto parsed = msa::parse_dtype(text);
    if (!parsed) {
      reader.fail("text", cat("is '", text,
                              "'; allowed: f32, bf16, f16, e4m3, e5m2, i32, i64, u8 or an alias"));
      reader.refuse();
    }
    *dtype = static_cast<msa_dtype>(*parsed);
  });
}

msa_status msa_parse_kv_layout(const char* text, msa_kv_layout* layout) {
  return guarded([&] {
    Reader reader("parse_kv_layout");
    require_pointers(reader, {{"text", text}, {"layout", layout}});
    const auto parsed = msa::parse_kv_layout(text);
    if (!parsed) {
      reader.fail("text", cat("is '", text,
                              "'; allowed: LBHNC (HND), LBNHC (NHD), LHBNC, BLHNC, BLNHC, BHLNC"));
      reader.refuse();
    }
    *layout = static_cast<msa_kv_layout>(*parsed);
  });
}

msa_status msa_tensor_dense(void* data, msa_dtype dtype, int32_t rank, const int64_t* shape,
                            msa_tensor* view) {
  return guarded([&] {
    Reader reader("tensor_dense");
    if (rank < 0 || rank > MSA_MAX_RANK) {
      reader.fail("rank", cat("is ", rank, "; allowed: 0 to ", MSA_MAX_RANK));
    }
    check_dtype(reader, dtype);
    require_pointers(reader, {{"shape", shape}, {"view", view}});
    msa::Tensor tensor;
    tensor.data = data;
    tensor.dtype = static_cast<msa::DType>(dtype);
    tensor.rank = rank;
    std::int64_t step = 1;
    for (int i = rank - 1; i >= 0; --i) {
      tensor.shape[i] = shape[i];
      tensor.stride[i] = step;
      if (shape[i] < 0 || __builtin_mul_overflow(step, shape[i], &step)) {
        reader.fail("shape", cat("has ", shape[i], " in dimension ", i,
                                 "; allowed: 0 or more, less than 2^63 elements in all"));
        reader.done();
      }
    }
    *view = msa::c_api::to_c(tensor);
  });
}

msa_status msa_kv_layer_view(void* base, msa_dtype dtype, msa_kv_layout layout,
                             const msa_kv_cache_shape* shape, int64_t layer, msa_tensor* view) {
  return guarded([&] {
    Reader reader("kv_layer_view");
    require_pointers(reader, {{"shape", shape}, {"view", view}});
    check_layer_view(reader, dtype, layout, *shape, layer);
    *view = msa::c_api::to_c(
        msa::kv_layer_view(base, static_cast<msa::DType>(dtype), static_cast<msa::KVLayout>(layout),
                           {shape->layers, shape->pages, shape->heads}, layer));
  });
}

void msa_set_log_callback(msa_log_callback callback, void* context) {
  msa::set_log_callback(callback, context);
}

void msa_set_parallel_for(msa_parallel_for function, void* context) {
  msa::set_parallel_for(function, context);
}

}  // extern "C"
