// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/io/output_file.h"

namespace msa::cli {
namespace {

std::string shell_quoted(const std::string& word) {
  const char* safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(safe) == std::string::npos) return word;
  std::string quoted = "'";
  for (char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

bool set_in_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool colour_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace

Console::Console(int argc, const char* const* argv) {
  for (int i = 0; i < argc; ++i) {
    if (i > 0) command_line_ += ' ';
    command_line_ += shell_quoted(argv[i]);
  }
}

void Console::add_options(CLI::App& app) {
  const char* group = "Output";
  add_file_option(app, "--json", json_, "the report as JSON");
  app.add_flag("-q,--quiet", quiet_, "No tables and no progress: errors and reports only")
      ->group(group);
  app.add_flag("--no-color", no_color_, "No colours (NO_COLOR does the same)")->group(group);
}

bool Console::progress() const { return !quiet_ && isatty(STDERR_FILENO) != 0; }

void Console::report(const Json& json) const {
  if (json_) write_text(*json_, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string Console::styled(Style style, const std::string& text) const {
  if (style == Style::plain || no_color_ || set_in_environment("NO_COLOR") || !colour_terminal()) {
    return text;
  }
  const char* code = style == Style::good ? "32" : style == Style::bad ? "31" : "1";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

void add_file_option(CLI::App& app, const std::string& name, std::optional<std::string>& file,
                     const std::string& what) {
  std::string help = fmt::format("Write {} to FILE, or to stdout without FILE", what);
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string type = option->get_type_name();
    help += fmt::format(" ({}=FILE where FILE could be taken for {})", name,
                        type.substr(0, type.find(':')));
  }
  app.add_option(name, file, help)->type_name("[FILE]")->expected(0, 1)->group("Output");
}

void write_text(const std::string& path, const std::string& text) {
  if (Console::is_stdout(path)) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  OutputFile file(path);
  file.write(text);
  file.commit();
}

std::string format_seconds(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_bytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::string progress_text(const std::string& label, const std::string& unit, std::int64_t done,
                          std::int64_t total, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string text = fmt::format("{}  ", label);
  if (total > 0) {
    const double share = 100.0 * static_cast<double>(done) / static_cast<double>(total);
    text += fmt::format("{}/{} {}  {:.0f} %", done, total, unit, share);
  } else {
    text += fmt::format("{} {}", done, unit);
  }
  text += fmt::format("  {:.3g} {}/s", rate, unit);
  if (total > done && rate > 0) {
    text += fmt::format("  {} left", format_seconds(static_cast<double>(total - done) / rate));
  }
  return text;
}

Progress::Progress(const Console& console, std::string label, std::string unit, std::int64_t total)
    : enabled_(console.progress()),
      label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total) {}

void Progress::update(std::int64_t done) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  // A terminal that went away is no reason to stop the work, so nothing here throws.
  const std::string line = "\r\x1b[K" + progress_text(label_, unit_, done, total_, seconds);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace msa::cli
