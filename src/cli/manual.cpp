// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>
#include <string>

#include "cli/command.h"
#include "cli/tree.h"
#include "msa/device.h"

namespace msa::cli {
namespace {

/// Text as man(7) prints it literally. A line that starts with a dot would be a request.
std::string escaped(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    line_start = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string option_entry(const OptionText& option) {
  std::string head;
  for (const std::string& name : option.names) {
    head += fmt::format("{}\\fB{}\\fR", head.empty() ? "" : ", ", escaped(name));
  }
  if (!option.value.empty()) {
    head += fmt::format("{}\\fI{}\\fR", head.empty() ? "" : " ", escaped(option.value));
  }
  std::string text = ".TP\n" + head + "\n" + escaped(option.help) + "\n";
  if (!option.choices.empty()) {
    text += escaped(fmt::format("One of {}.", fmt::join(option.choices, ", "))) + "\n";
  }
  return text;
}

std::string synopsis(const CommandText& program, const CommandText& command) {
  std::string text =
      fmt::format(".B {} {}\n", escaped(program.name), escaped(command.name)) + "[OPTIONS]\n";
  for (const OptionText& option : command.options) {
    if (option.positional()) text += fmt::format(".I {}\n", escaped(option.value));
  }
  return text + ".br\n";
}

/// A block whose line breaks stay.
std::string verbatim(const std::string& text) {
  return text.empty() ? "" : ".PP\n.nf\n" + escaped(text) + "\n.fi\n";
}

std::string command_section(const CommandText& program, const CommandText& command) {
  std::string text = fmt::format(".SS {} {}\n{}.\n", escaped(program.name), escaped(command.name),
                                 escaped(command.summary));
  for (const OptionText& option : command.options) text += option_entry(option);
  return text + verbatim(command.footer);
}

class Manual final : public Command {
 public:
  const char* name() const override { return "manual"; }
  const char* summary() const override { return "Print the manual page"; }
  bool visible() const override { return false; }
  void add_options(CLI::App& app) override { app_ = &app; }
  int run(Console&) override {
    fmt::print("{}", manual_page(describe(*app_->get_parent()), version()));
    return exit_ok;
  }

 private:
  const CLI::App* app_ = nullptr;
};

}  // namespace

std::string manual_page(const CommandText& program, const std::string& version) {
  std::string title = program.name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string text =
      fmt::format(".TH {} 1 \"\" \"{} {}\" \"User Commands\"\n", title, program.name, version);
  text += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", program.name,
                      escaped(program.summary.substr(0, program.summary.find_last_of('.'))));
  for (const CommandText& command : program.commands) text += synopsis(program, command);
  text += ".SH DESCRIPTION\n" + escaped(program.summary) +
          "\nResults go to standard output, progress and errors to standard error.\n";
  text += ".SH OPTIONS\n";
  for (const OptionText& option : program.options) text += option_entry(option);
  text += ".SH COMMANDS\n";
  for (const CommandText& command : program.commands) text += command_section(program, command);
  text += R"(.SH EXIT STATUS
.TP
0
Everything went well.
.TP
1
A check failed.
.TP
2
Wrong usage, or an input that cannot be read or does not fit.
.TP
3
No suitable device.
.SH ENVIRONMENT
.TP
.B MSA_BACKEND
Restricts every call to the backend of this name.
.TP
.B MSA_CPU_ISA
Instruction set of the CPU backend: baseline, avx2, avx512, avx512_bf16 or amx.
.TP
.B MSA_THREADS
Threads of the CPU backend, 1 to 4096; default: all usable cores.
.TP
.B MSA_CHECK
1: the contents of tables, lengths and selections are validated too, in device memory as well.
.TP
.B NO_COLOR
Anything: no colours.
)";
  return text;
}

std::unique_ptr<Command> make_manual() { return std::make_unique<Manual>(); }

}  // namespace msa::cli
