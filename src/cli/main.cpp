// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/tree.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

const char* const description = "MiniMax sparse attention over paged KV caches.";
const char* const footer =
    "Exit codes: 0 ok, 1 a check failed, 2 wrong usage or input, 3 no suitable device.\n"
    "Environment: MSA_BACKEND, MSA_CPU_ISA, MSA_THREADS, MSA_CHECK, NO_COLOR.";

void print_error(const std::string& text) { fmt::print(stderr, "msa: error: {}\n", text); }

/// Hours of work must not end at a file that cannot be written, nor on top of their own input.
void check_files(const Command& command, const Console& console) {
  std::vector<NamedFile> outputs = command.outputs();
  if (console.json_file()) outputs.push_back({"--json", *console.json_file()});
  std::vector<std::string> problems = file_problems(command.inputs(), outputs);
  for (std::string& problem : problems) problem = fmt::format("{}: {}", command.name(), problem);
  if (!problems.empty()) throw Error(ErrorCode::io, std::move(problems));
}

int run_guarded(Command& command, Console& console) {
  try {
    check_files(command, console);
    return command.run(console);
  } catch (const Error& error) {
    for (const std::string& failure : error.failures()) print_error(failure);
    const bool no_device =
        error.code() == ErrorCode::unsupported || error.code() == ErrorCode::device;
    return no_device ? exit_no_device : exit_usage;
  } catch (const std::bad_alloc&) {
    print_error("not enough memory");
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  return exit_usage;
}

/// A full disk or a closed pipe behind stdout must not look like success.
int with_flushed_stdout(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  print_error("cannot write to stdout");
  return exit_usage;
}

int main_guarded(int argc, char** argv) {
  Console console(argc, argv);
  CLI::App app(description, "msa");
  app.footer(footer);
  app.set_version_flag("--version", std::string("msa ") + version(), "Print the version and exit");
  app.get_formatter()->column_width(34);
  // Zero is let through here, so that an unknown name is reported as such.
  app.require_subcommand(0, 1);

  const std::vector<std::unique_ptr<Command>> commands = all_commands();
  for (const std::unique_ptr<Command>& command : commands) {
    CLI::App* sub = app.add_subcommand(command->name(), command->summary());
    if (!command->visible()) sub->group("");
    command->add_options(*sub);
    if (command->visible()) console.add_options(*sub);
  }
  try {
    std::vector<std::string> words =
        with_values_attached(describe(app), {argv + std::min(argc, 1), argv + argc});
    std::reverse(words.begin(), words.end());  // the order that the parser takes them in
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" of code 0; the parser prints them to stdout.
    if (error.get_exit_code() == 0) return with_flushed_stdout(app.exit(error));
    print_error(error.what());
    fmt::print(stderr, "Run with --help for more information.\n");
    return exit_usage;
  }
  for (const std::unique_ptr<Command>& command : commands) {
    if (app.got_subcommand(command->name())) {
      return with_flushed_stdout(run_guarded(*command, console));
    }
  }
  print_error("a command is required; msa --help lists them");
  return exit_usage;
}

}  // namespace
}  // namespace msa::cli

int main(int argc, char** argv) {
  try {
    return msa::cli::main_guarded(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "msa: error: %s\n", error.what());
    return msa::cli::exit_usage;
  }
}
