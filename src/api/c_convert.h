// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "api/check.h"
#include "msa/attend.h"
#include "msa/c_api.h"
#include "msa/copy_pages.h"
#include "msa/index.h"
#include "msa/merge.h"
#include "msa/write_cache.h"

/// \file
/// From the structs of the C ABI to those of the C++ API, and back.

namespace msa::c_api {

/// Fills a caller's struct of `size` bytes with `values`, zero where it is larger.
template <class Struct>
void fill(Struct* given, std::size_t size, Struct values) {
  if (given == nullptr || size < sizeof(std::size_t)) return;
  values.struct_size = size;
  const std::size_t known = std::min(size, sizeof values);
  std::memcpy(given, &values, known);
  std::memset(reinterpret_cast<char*>(given) + known, 0, size - known);
}

SelectRule from_c(const msa_select_rule& rule);
Workspace from_c(const msa_workspace& workspace);

msa_tensor to_c(const ConstTensor& tensor);
msa_scale to_c(const Scale& scale);
msa_select_rule to_c(const SelectRule& rule);
msa_batch to_c(const BatchMetadata& batch);

/// Reads the structs of one call. Everything wrong is collected, so that `done` can name all of it
/// before the operator is called.
class Reader {
 public:
  explicit Reader(const char* op) : check_(op) {}

  /// Copies a caller's struct over its defaults, by the rule of `struct_size`; the copy's own is 0
  /// where there was nothing to copy, and what it points to says nothing then.
  template <class Struct>
  Struct read(const Struct* given, const char* name, void (*init)(Struct*, std::size_t)) {
    Struct known;
    init(&known, sizeof known);
    const bool copied = copy(&known, sizeof known, given, name);
    known.struct_size = copied ? sizeof known : 0;
    return known;
  }

  /// Writes an output struct of the caller, by the rule of `struct_size`.
  template <class Struct>
  void write(Struct* given, const char* name, const Struct& values) {
    const std::size_t size = struct_size(given, name);
    done();
    fill(given, size, values);
  }

  /// The size that a caller's struct says it has; 0 with a failure where it cannot be one.
  std::size_t struct_size(const void* given, const char* name);

  /// Whether a number of things is one.
  bool count(const char* name, std::int64_t count);

  /// `count` elements of the caller; none where something is wrong with them.
  template <class T>
  std::span<const T> array(const std::string& name, const T* given, std::int64_t count) {
    if (count > 0 && given == nullptr) fail(name, "is null");
    if (count <= 0 || given == nullptr) return {};
    return {given, static_cast<std::size_t>(count)};
  }

  /// Writes as many of `values` as `capacity` elements of the caller hold, and how many they are.
  template <class T>
  void write_array(const char* name, std::span<const T> values, T* given, std::int64_t capacity,
                   std::int64_t* size) {
    if (size == nullptr) fail("count", "is null");
    if (count("capacity", capacity) && capacity > 0 && given == nullptr) fail(name, "is null");
    done();
    const auto room = static_cast<std::size_t>(capacity);
    std::copy_n(values.begin(), std::min(values.size(), room), given);
    *size = static_cast<std::int64_t>(values.size());
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
  bool copy(void* known, std::size_t known_size, const void* given, const char* name);

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

}  // namespace msa::c_api
