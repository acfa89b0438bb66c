// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

/// \file
/// The real program, run by a shell.

namespace msa::cli {

struct ProgramResult {
  int code = -1;  ///< −1 where a signal ended it
  std::string out;
  std::string err;
};

/// Runs `ENVIRONMENT msa ARGUMENTS` with both streams caught.
ProgramResult run_msa(const std::string& arguments, const std::string& environment = "");

}  // namespace msa::cli
