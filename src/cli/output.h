// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

/// \file
/// Where words go: results on stdout, progress and errors on stderr, reports into files.

namespace CLI {
class App;
}

namespace msa::cli {

/// Reports keep the order in which they are filled.
using Json = nlohmann::ordered_json;

enum class Style { plain, good, bad, strong };

/// The output side of a command. With `--json` alone (or `--json -`) the JSON report is all that
/// stdout gets; with `--json FILE` the table stays on stdout. `--quiet` leaves errors and reports.
class Console {
 public:
  /// `argc`, `argv`: the program's own, for the reproducing command line.
  Console(int argc, const char* const* argv);

  /// Adds --json, --quiet and --no-color.
  void add_options(CLI::App& app);

  bool quiet() const { return quiet_; }
  /// True where human text is wanted on stdout.
  bool text() const { return !quiet_ && !stdout_taken_ && !json_to_stdout(); }
  /// True where progress is shown: stderr is a terminal and nobody asked for silence.
  bool progress() const;
  bool wants_json() const { return json_.has_value(); }
  /// What --json names: "" for stdout, nothing without --json.
  const std::optional<std::string>& json_file() const { return json_; }
  bool json_to_stdout() const { return json_ && is_stdout(*json_); }

  /// Another machine format (CSV) goes to stdout: human text gives way.
  void take_stdout() { stdout_taken_ = true; }

  /// Prints human text to stdout, where it is wanted.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    if (text()) fmt::print(stdout, format, std::forward<Args>(args)...);
  }
  /// Writes the report to where --json says; nothing without --json.
  /// \throws Error (io) where the file cannot be written.
  void report(const Json& json) const;

  /// `text` in the style's colour, where stdout is a terminal and colour is allowed.
  std::string styled(Style style, const std::string& text) const;

  /// The command line, quoted for a shell.
  const std::string& command_line() const { return command_line_; }

  /// True for the file names that mean stdout: "" and "-".
  static bool is_stdout(const std::string& path) { return path.empty() || path == "-"; }

 private:
  std::string command_line_;
  bool quiet_ = false;
  bool no_color_ = false;
  bool stdout_taken_ = false;
  std::optional<std::string> json_;
};

/// Adds the option `name` of a FILE that may be left out: `file` is "" then. `what` is written, in
/// the words of `--help`. To be called after the command's arguments were added, since it says when
/// a word could be taken for one of them (with_values_attached in tree.h decides).
void add_file_option(CLI::App& app, const std::string& name, std::optional<std::string>& file,
                     const std::string& what);

/// Writes `text` to a file, whole or not at all, or to stdout for "" and "-".
/// \throws Error (io) naming the file.
void write_text(const std::string& path, const std::string& text);

/// "12.3 s", "4 min 05 s": a duration for people.
std::string format_seconds(double seconds);
/// "1.2 GB" of bytes, decimal prefixes.
std::string format_bytes(double bytes);

/// A line on stderr with the share done, the rate and the remaining time, rewritten at most ten
/// times a second; nothing where `console.progress()` is false. Removed at the end.
class Progress {
 public:
  /// `total` counts units of `unit` ("cases", "steps", …); 0 = unknown.
  Progress(const Console& console, std::string label, std::string unit, std::int64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void update(std::int64_t done);
  /// Removes the line, so that other output can be printed; the next update draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool drawn_ = false;
  std::string label_;
  std::string unit_;
  std::int64_t total_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_{};
};

/// The text that a progress line shows after `seconds`.
std::string progress_text(const std::string& label, const std::string& unit, std::int64_t done,
                          std::int64_t total, double seconds);

}  // namespace msa::cli
