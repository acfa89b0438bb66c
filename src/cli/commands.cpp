// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

namespace msa::cli {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_info());
  commands.push_back(make_run());
  commands.push_back(make_verify());
  commands.push_back(make_bench());
  commands.push_back(make_replay());
  commands.push_back(make_soak());
  commands.push_back(make_completions());
  commands.push_back(make_manual());
  return commands;
}

}  // namespace msa::cli
