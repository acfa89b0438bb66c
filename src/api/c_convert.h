// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "api/check.h"
#include "msa/c_api.h"
#include "msa/msa.h"

/// \file
/// From the structs of the C ABI to those of the C++ API.

namespace msa::c_api {

/// Reads the structs of one call. Everything wrong is collected, so that `done` can name all of it
/// before the operator is called.
class Reader {
 public:
  explicit Reader(const char* op) : check_(op) {}

  /// Copies a caller's struct over its defaults, by the rule of `struct_size`.
  template <class Struct>
  Struct read(const Struct* given, const char* name, void (*init)(Struct*, std::size_t)) {
    Struct known;
    init(&known, sizeof known);
    copy(&known, sizeof known, given, name);
    known.struct_size = sizeof known;
    return known;
  }

  Tensor tensor(const msa_tensor& given, const std::string& name);
  KVCache cache(const msa_kv_cache& given, const std::string& name);
  Scale scale(const msa_scale& given, const std::string& name);
  BatchMetadata batch(const msa_batch* given);

  void fail(const std::string& argument, const std::string& what) { check_.fail(argument, what); }
  /// Throws everything that was wrong; at least one thing was.
  [[noreturn]] void refuse() const;
  /// refuse() where anything was wrong.
  void done() const {
    if (!check_.ok()) refuse();
  }

 private:
  void copy(void* known, std::size_t known_size, const void* given, const char* name);

  Checker check_;
};

WriteCacheArgs convert(Reader& reader, const msa_write_cache_args* given, const char* name);
InsertCacheArgs convert(Reader& reader, const msa_insert_cache_args* given, const char* name);
CopyPagesArgs convert(Reader& reader, const msa_copy_pages_args* given, const char* name);
IndexArgs convert(Reader& reader, const msa_index_blocks_args* given, const char* name);
IndexScoresArgs convert(Reader& reader, const msa_index_scores_args* given, const char* name);
SelectArgs convert(Reader& reader, const msa_select_blocks_args* given, const char* name);
AttendArgs convert(Reader& reader, const msa_attend_args* given, const char* name);
MergeArgs convert(Reader& reader, const msa_merge_states_args* given, const char* name);
LayerStepArgs convert(Reader& reader, const msa_layer_step_args* given, const char* name);

}  // namespace msa::c_api
