// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "msa/export.h"

/// \file
/// The one exception type of the library.

namespace msa {

/// Why a call was refused. Values are those of the C ABI's `msa_status`.
enum class ErrorCode : std::int32_t {
  invalid_argument = 1,  ///< an argument is wrong whatever the machine
  unsupported = 2,       ///< no backend on this machine serves the call
  workspace = 3,         ///< the workspace is too small, or its cap cannot be met
  device = 4,            ///< a device or launch error
  io = 5,                ///< a file that cannot be read or written
  internal = 6,          ///< a fault of the library
};

/// "invalid_argument", "unsupported", …
MSA_API const char* name(ErrorCode code);

/// Thrown by every operator before anything is written. `failures()` lists **all** conditions that
/// failed, each with the argument's name, its value and what is allowed; `what()` is the same text,
/// one condition a line, each line starting with the operator's name.
class MSA_API Error : public std::runtime_error {
 public:
  /// All conditions that failed, one text each.
  Error(ErrorCode code, std::vector<std::string> failures);
  /// A single condition.
  Error(ErrorCode code, std::string failure);

  /// Why the call was refused.
  ErrorCode code() const noexcept { return code_; }
  /// The failed conditions, in the order of `what()`'s lines.
  const std::vector<std::string>& failures() const noexcept { return failures_; }

 private:
  ErrorCode code_;
  std::vector<std::string> failures_;
};

}  // namespace msa
