// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/check.h"
#include "api/few.h"
#include "msa/attend.h"
#include "msa/index.h"
#include "msa/kv_cache.h"
#include "msa/metadata.h"
#include "msa/tensor.h"

/// \file
/// From the arguments of a packed call to those of the C++ API.

namespace msa::python {

/// In a message: what `dl_type` knows.
inline constexpr const char* type_names =
    "bf16, f16, f32, e4m3, e5m2, i32, i64, u8, or what frameworks and engines call them (bfloat16, "
    "fp8, fp8_e5m2, ...)";

/// The type that tvm-ffi and array libraries know by other names; nothing for an unknown one.
std::optional<DLDataType> dl_type(std::string_view name);

/// Reads the arguments of one packed call from the first to the last. Everything that cannot be
/// read is collected, so that `done` can name all of it before the operator is called; what can be
/// read is for the operator to judge, element types that the library does not know included.
///
/// While it lives, the library's messages name arguments and element types as the caller does.
class Arguments final : private Dialect {
 public:
  Arguments(const char* op, const TVMFFIAny* args, std::int32_t count)
      : check_(op), args_(args), count_(count) {}

  /// `argument` of an operator's, and what belongs to it, has another name here.
  void call_it(std::string_view argument, std::string_view name) {
    names_.push_back({argument, name});
  }

  /// Any tensor; None = not given. `member`: what the operator calls it, where that is another
  /// name.
  Tensor tensor(const char* name, const char* member = nullptr);
  /// A tensor that tvm-ffi counts the references of; null with a failure where there is none.
  TVMFFIObjectHandle object(const char* name);
  /// Three arguments: the packed view or K, V or None, and the name of the type of raw bytes.
  KVCache kv_cache();
  /// Keys or queries of the indexer: raw bytes are e4m3, the only one-byte type that they may have.
  Tensor index_tensor(const char* name);
  /// Two arguments: a number (None = 1) or a tensor of one f32, and None or a tensor that takes its
  /// place. (A torch operator's schema has a type for either, but none for both.)
  Scale scale(const char* name);
  /// A number; None or missing = `otherwise`.
  std::int64_t integer(const char* name, std::int64_t otherwise = 0);
  int small_integer(const char* name, int otherwise);
  double number(const char* name, double otherwise);
  bool flag(const char* name, bool otherwise);
  /// Text; None = nothing.
  std::optional<std::string_view> text(const char* name);
  /// Ten arguments: the fields of the struct, in its order.
  BatchMetadata batch();
  /// Three arguments.
  SelectRule rule();
  /// A tensor whose memory is the workspace; None = the call finds one by itself.
  std::optional<Workspace> workspace();
  std::size_t workspace_cap();
  /// A cudaStream_t as a number or a pointer. None = the stream that the caller's framework works
  /// on (CUDA tensors).
  Stream stream(Device device);

  /// Whether arguments are left to be read.
  bool left() const { return read_ < count_; }

  void fail(const char* name, std::string_view what) { check_.fail(name, what); }
  /// Throws where something could not be read, or where arguments are left over; the last ones may
  /// be missing.
  void done();

 private:
  std::string argument(std::string_view name) const override;
  std::string type(DType type) const override;
  std::string_view typing() const override;

  const TVMFFIAny& next();
  Tensor convert(const DLTensor& given, const char* name);
  void fail_tensor(const char* name, const TVMFFIAny& given);

  Checker check_;
  const TVMFFIAny* args_;
  std::int32_t count_;
  std::int32_t read_ = 0;
  Few<std::pair<std::string_view, std::string_view>, 10> names_;  // the operator's, the caller's
};

}  // namespace msa::python
