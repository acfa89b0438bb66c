// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <sys/wait.h>

#include <cstdlib>

#include "scratch.h"

namespace msa::cli {

ProgramResult run_msa(const std::string& arguments, const std::string& environment) {
  const std::string out = scratch_folder() / "stdout", err = scratch_folder() / "stderr";
  const std::string command =
      environment + " " MSA_COMMAND " " + arguments + " >" + out + " 2>" + err;
  const int status = std::system(command.c_str());
  ProgramResult result;
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  result.out = read_text(out);
  result.err = read_text(err);
  return result;
}

}  // namespace msa::cli
