// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "inputs.h"

/// \file
/// The command line that the benchmarks share.

namespace msa::bench {

struct Arguments {
  const RealSelection* selection() const { return real ? &*real : nullptr; }

  std::optional<RealSelection> real;  // --selection NPY
  std::string only;                   // --only TEXT
  bool inputs = false;                // --inputs: print checksums, measure nothing
  std::string file;                   // where the report goes
};

/// What of them a benchmark has a use for; all of them take --inputs or a file.
struct Takes {
  bool selection, only;
};

/// main() of a benchmark: body(arguments), or 2 with the usage or what went wrong.
int run_main(const char* program, Takes takes, int argc, char** argv,
             const std::function<void(const Arguments&)>& body);

}  // namespace msa::bench
