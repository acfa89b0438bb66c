// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/tree.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace msa::cli {
namespace {

/// The values in "OP:{decode,prefill}", as the parser writes them behind a value's type.
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::istringstream list(type.substr(open + 1, close - open - 1));
  for (std::string choice; std::getline(list, choice, ',');) choices.push_back(choice);
  return choices;
}

OptionText describe(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();
    text.choices = choices_of(type);
    text.value = type.substr(0, type.find_first_of(": "));
  }
  text.help = option.get_description();
  text.group = option.get_group();
  return text;
}

}  // namespace

bool OptionText::is_file() const {
  for (const char* word : {"FILE", "IN", "OUT", "TRACE"}) {
    if (value == word || value == "[" + std::string(word) + "]") return true;
  }
  return value.rfind("FILE|", 0) == 0;
}

CommandText describe(const CLI::App& app) {
  CommandText text;
  text.name = app.get_name();
  text.summary = app.get_description();
  text.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) text.options.push_back(describe(*option));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    text.commands.push_back(describe(*command));
    // The parser hands the program's own footer down to commands without one.
    if (text.commands.back().footer == text.footer) text.commands.back().footer.clear();
  }
  return text;
}

}  // namespace msa::cli
