// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
//
// The command msa, run inside of Python: the wheel holds the library once, and no program.
#include <cstdio>
#include <string>
#include <vector>

#include "packed.h"

/// src/cli/main.cpp's main, under the name that this library compiles it by.
int msa_command(int argc, char** argv);

namespace msa::python {

/// Runs the command with the arguments given, its own name first, and returns its exit code.
MSA_PACKED(command, in, result) {
  std::vector<std::string> words;
  while (in.left()) words.emplace_back(in.text("argv").value_or(""));
  in.done();
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int code = msa_command(static_cast<int>(words.size()), argv.data());
  std::fflush(stdout);
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = code;
}

}  // namespace msa::python
