// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>

#include "api/c_convert.h"
#include "msa/c_api.h"

/// \file
/// What the functions of the C ABI share: exceptions become a status and the thread's last error.

namespace msa::c_api {

/// The last call of this thread went well.
void clear_error() noexcept;
/// Called while an exception is handled: its status, its text kept for msa_last_error().
msa_status record_exception() noexcept;

/// Runs `body` with every exception turned into a status.
template <class Body>
msa_status guarded(Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    return record_exception();
  }
  clear_error();
  return MSA_OK;
}

struct Named {
  const char* name;
  const void* pointer;
};

/// Refuses a call that lacks one of its pointers, naming all that are null.
void require_pointers(Reader& reader, std::initializer_list<Named> pointers);

/// Calls operator `run` with the converted arguments.
template <class Given, class Run>
msa_status call(const char* op, const Given* given, Run&& run) noexcept {
  return guarded([&] {
    Reader reader(op);
    const auto args = convert(reader, given, "args");
    reader.done();
    run(args);
  });
}

template <class Given>
msa_status call_workspace_size(const char* op, const Given* given, std::size_t* bytes) noexcept {
  return guarded([&] {
    Reader reader(op);
    const auto args = convert(reader, given, "args");
    if (bytes == nullptr) {
      reader.fail("bytes", "is null");
      reader.refuse();
    }
    reader.done();
    *bytes = workspace_size(args);
  });
}

}  // namespace msa::c_api
