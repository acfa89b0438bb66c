// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// \file
/// The command line described as data: what the manual and the completions are made from.

namespace CLI {
class App;
}

namespace msa::cli {

struct OptionText {
  std::vector<std::string> names;  ///< "-o", "--output"; empty for a positional argument
  std::string value;               ///< "FILE", "[FILE]" where it may be left out; empty for a flag
  bool required = false;           ///< the command does not run without it
  std::string help;                ///< one or more sentences
  std::string group;               ///< heading of `--help`
  std::vector<std::string> choices;  ///< the only values, where the parser knows them

  bool positional() const { return names.empty(); }
  bool is_file() const;  ///< its value is the name of a file
  bool optional_value() const { return !value.empty() && value.front() == '['; }
};

struct CommandText {
  std::string name;
  std::string summary;
  std::string footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
};

/// The program and its visible subcommands.
CommandText describe(const CLI::App& app);

/// The words of a command line, with those of options whose value may be left out made plain: in
/// "--json FILE" the word becomes "--json=FILE", unless it serves an argument of the command that
/// no other word is there for: "bench --json decode", "run --json in.safetensors -o out". There it
/// stays the argument, and the option goes without.
std::vector<std::string> with_values_attached(const CommandText& program,
                                              std::vector<std::string> words);

/// A completion script for "bash", "zsh" or "fish"; "" for another name.
std::string completion_script(const CommandText& program, const std::string& shell);

/// The manual page in man(7) macros.
std::string manual_page(const CommandText& program, const std::string& version);

}  // namespace msa::cli
