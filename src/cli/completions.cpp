// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/tree.h"

namespace msa::cli {
namespace {

/// Names of all options, with spaces between.
std::string option_words(const CommandText& command) {
  std::string words;
  for (const OptionText& option : command.options) {
    for (const std::string& name : option.names) words += (words.empty() ? "" : " ") + name;
  }
  return words;
}

/// Values of the positional arguments, where the parser knows them.
std::string argument_words(const CommandText& command) {
  std::string words;
  for (const OptionText& option : command.options) {
    if (option.positional()) words += fmt::format("{} ", fmt::join(option.choices, " "));
  }
  return words;
}

std::string bash_command(const CommandText& command) {
  std::string values;
  for (const OptionText& option : command.options) {
    if (option.positional() || option.value.empty() || option.optional_value()) continue;
    // Values that are no files complete to nothing: a file name would be wrong.
    const std::string words =
        option.is_file()
            ? "compgen -f -- \"$cur\""
            : "compgen -W '" + fmt::format("{}", fmt::join(option.choices, " ")) + "' -- \"$cur\"";
    values += fmt::format("        {}) COMPREPLY=($({})); return ;;\n",
                          fmt::join(option.names, "|"), words);
  }
  std::string text = fmt::format("    {})\n", command.name);
  if (!values.empty()) text += "      case \"$prev\" in\n" + values + "      esac\n";
  return text + fmt::format("      options='{}'\n      arguments='{}'\n      ;;\n",
                            option_words(command), argument_words(command));
}

std::string bash_script(const CommandText& program) {
  std::string names, cases;
  for (const CommandText& command : program.commands) {
    names += command.name + " ";
    cases += bash_command(command);
  }
  return fmt::format(R"(# bash completion of {0}
_{0}() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  local options='{1}' arguments='{2}'
  COMPREPLY=()
  if [ "$COMP_CWORD" -gt 1 ]; then
    arguments=''
    case "${{COMP_WORDS[1]}}" in
{3}    esac
  fi
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  elif [ -n "${{arguments// /}}" ]; then
    COMPREPLY=($(compgen -W "$arguments" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _{0} {0}
)",
                     program.name, option_words(program), names, cases);
}

/// Text inside single quotes, with what zsh's _arguments reads as syntax escaped.
std::string zsh_quoted(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      quoted += std::string("\\") + c;
    } else {
      quoted += c;
    }
  }
  return quoted;
}

std::string zsh_value(const OptionText& option) {
  if (option.is_file()) return ":file:_files";
  if (!option.choices.empty()) {
    return fmt::format(":value:({})", fmt::join(option.choices, " "));
  }
  return fmt::format(":{}: ", zsh_quoted(option.value));
}

std::string zsh_arguments(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    if (option.positional()) {
      text += fmt::format(" \\\n        '{}'", zsh_value(option));
      continue;
    }
    const std::string value =
        option.value.empty() ? "" : (option.optional_value() ? ":" : "") + zsh_value(option);
    for (const std::string& name : option.names) {
      text += fmt::format(" \\\n        '{}[{}]{}'", name, zsh_quoted(option.help), value);
    }
  }
  return text;
}

std::string zsh_script(const CommandText& program) {
  std::string names, cases;
  for (const CommandText& command : program.commands) {
    names += fmt::format("    '{}:{}'\n", command.name, zsh_quoted(command.summary));
    cases += fmt::format("    {})\n      _arguments{}\n      ;;\n", command.name,
                         zsh_arguments(command));
  }
  return fmt::format(R"(#compdef {0}
_{0}() {{
  local -a commands
  commands=(
{1}  )
  if (( CURRENT == 2 )); then
    if [[ "$words[2]" == -* ]]; then
      _arguments{2}
    else
      _describe command commands
    fi
    return
  fi
  local command="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$command" in
{3}  esac
}}
_{0} "$@"
)",
                     program.name, names, zsh_arguments(program), cases);
}

std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

/// One `complete` line; `condition` says where it applies.
std::string fish_option(const std::string& program, const std::string& condition,
                        const OptionText& option) {
  std::string text = fmt::format("complete -c {} -n {}", program, fish_quoted(condition));
  for (const std::string& name : option.names) {
    text += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.value.empty() && !option.optional_value() && !option.positional()) {
    text += option.is_file() ? " -r -F" : " -x";
  }
  if (!option.choices.empty()) {
    text += " -a " + fish_quoted(fmt::format("{}", fmt::join(option.choices, " ")));
  } else if (option.positional() && option.is_file()) {
    text += " -F";
  }
  return text + " -d " + fish_quoted(option.help) + "\n";
}

std::string fish_script(const CommandText& program) {
  std::string text = fmt::format("# fish completion of {0}\ncomplete -c {0} -f\n", program.name);
  for (const OptionText& option : program.options) {
    text += fish_option(program.name, "__fish_use_subcommand", option);
  }
  for (const CommandText& command : program.commands) {
    text += fmt::format("complete -c {} -n '__fish_use_subcommand' -a {} -d {}\n", program.name,
                        command.name, fish_quoted(command.summary));
    for (const OptionText& option : command.options) {
      text += fish_option(program.name, "__fish_seen_subcommand_from " + command.name, option);
    }
  }
  return text;
}

class Completions final : public Command {
 public:
  const char* name() const override { return "completions"; }
  const char* summary() const override { return "Print a completion script"; }
  bool visible() const override { return false; }
  void add_options(CLI::App& app) override {
    app_ = &app;
    app.add_option("shell", shell_, "bash, zsh or fish")
        ->type_name("SHELL")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  }
  int run(Console&) override {
    fmt::print("{}", completion_script(describe(*app_->get_parent()), shell_));
    return exit_ok;
  }

 private:
  const CLI::App* app_ = nullptr;
  std::string shell_;
};

}  // namespace

std::string completion_script(const CommandText& program, const std::string& shell) {
  if (shell == "bash") return bash_script(program);
  if (shell == "zsh") return zsh_script(program);
  if (shell == "fish") return fish_script(program);
  return "";
}

std::unique_ptr<Command> make_completions() { return std::make_unique<Completions>(); }

}  // namespace msa::cli
