// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cli/io/output_file.h"
#include "cli/output.h"

/// \file
/// What a subcommand of `msa` is. One source file each; commands.cpp lists them.

namespace CLI {
class App;
}

namespace msa::cli {

/// Exit codes of `msa`.
enum ExitCode : int {
  exit_ok = 0,
  exit_check_failed = 1,
  exit_usage = 2,
  exit_no_device = 3,
};

/// One subcommand. `add_options` binds options to members; after parsing, `run` does the work. An
/// exception that leaves `run` is printed on stderr and becomes an exit code: `msa::Error` of code
/// `unsupported` or `device` 3, everything else 2.
class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  virtual const char* name() const = 0;
  virtual const char* summary() const = 0;  ///< one line of `msa --help`
  /// False hides the command from `--help`, the manual and the completions.
  virtual bool visible() const { return true; }
  /// Options of this command. --json, --quiet and --no-color are added by the caller.
  virtual void add_options(CLI::App& app) = 0;
  /// Files that the options name, as they are after parsing; --json aside. Before `run` every
  /// output is known to be writable and to be neither an input nor another output.
  virtual std::vector<NamedFile> inputs() const { return {}; }
  virtual std::vector<NamedFile> outputs() const { return {}; }
  virtual int run(Console& console) = 0;  ///< an ExitCode
};

std::unique_ptr<Command> make_info();         // info.cpp
std::unique_ptr<Command> make_run();          // run.cpp
std::unique_ptr<Command> make_verify();       // verify.cpp
std::unique_ptr<Command> make_bench();        // bench/bench.cpp
std::unique_ptr<Command> make_replay();       // replay/command.cpp
std::unique_ptr<Command> make_soak();         // soak/command.cpp
std::unique_ptr<Command> make_completions();  // completions.cpp
std::unique_ptr<Command> make_manual();       // manual.cpp

/// Every subcommand, in the order of `msa --help`.
std::vector<std::unique_ptr<Command>> all_commands();

}  // namespace msa::cli
