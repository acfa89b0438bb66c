// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <cstdio>
#include <exception>
#include <string_view>

namespace msa::bench {
namespace {

/// Whether all of them were understood.
bool parse(Takes takes, int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (takes.selection && argument == "--selection" && i + 1 < argc) {
      arguments.real.emplace(argv[++i]);
    } else if (takes.only && argument == "--only" && i + 1 < argc) {
      arguments.only = argv[++i];
    } else if (argument == "--inputs") {
      arguments.inputs = true;
    } else if (argument.starts_with('-') || !arguments.file.empty()) {
      return false;
    } else {
      arguments.file = argument;
    }
  }
  return true;
}

}  // namespace

int run_main(const char* program, Takes takes, int argc, char** argv,
             const std::function<void(const Arguments&)>& body) {
  try {
    Arguments arguments;
    if (!parse(takes, argc, argv, arguments)) {
      std::fprintf(stderr, "usage: %s%s%s [--inputs | FILE]\n", program,
                   takes.selection ? " [--selection NPY]" : "", takes.only ? " [--only TEXT]" : "");
      return 2;
    }
    body(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 2;
  }
}

}  // namespace msa::bench
