// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tvm/ffi/c_api.h>

#include <cstdint>
#include <exception>
#include <new>

#include "arguments.h"
#include "msa/error.h"

/// \file
/// How a packed function is written: exceptions become tvm-ffi's raised error.

namespace msa::python {

/// tvm-ffi holds an error already, and it says more than we could.
class RaisedError : public std::exception {};

/// The kind by which the Python package finds its exception.
inline const char* kind_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "msa_cpp.invalid_argument";
    case ErrorCode::unsupported:
      return "msa_cpp.unsupported";
    case ErrorCode::workspace:
      return "msa_cpp.workspace";
    case ErrorCode::device:
      return "msa_cpp.device";
    case ErrorCode::io:
      return "msa_cpp.io";
    case ErrorCode::internal:
      break;
  }
  return "msa_cpp.internal";
}

/// Runs `body(arguments, result)` as tvm-ffi wants a call to end: 0, or -1 with an error raised.
template <class Body>
int packed_call(const char* op, const TVMFFIAny* args, std::int32_t count, TVMFFIAny* result,
                Body body) noexcept {
  try {
    Arguments arguments(op, args, count);
    body(arguments, result);
    return 0;
  } catch (const Error& error) {
    TVMFFIErrorSetRaisedFromCStr(kind_of(error.code()), error.what());
  } catch (const RaisedError&) {
  } catch (const std::bad_alloc&) {
    TVMFFIErrorSetRaisedFromCStr("MemoryError", "out of memory");
  } catch (const std::exception& error) {
    TVMFFIErrorSetRaisedFromCStr("msa_cpp.internal", error.what());
  }
  return -1;
}

}  // namespace msa::python

/// Defines the packed function `name`; what follows is its body.
#define MSA_PACKED(name, arguments, result)                                                 \
  static void packed_##name(Arguments& arguments, TVMFFIAny* result);                       \
  extern "C" MSA_API int __tvm_ffi_##name(void*, const TVMFFIAny* args, std::int32_t count, \
                                          TVMFFIAny* result) {                              \
    return packed_call(#name, args, count, result, packed_##name);                          \
  }                                                                                         \
  static void packed_##name([[maybe_unused]] Arguments& arguments,                          \
                            [[maybe_unused]] TVMFFIAny* result)
