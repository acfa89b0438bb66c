// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/options.h"
#include "cli/place.h"
#include "cli/soak/soak.h"
#include "cli/system_info.h"
#include "msa/device.h"

namespace msa::cli {
namespace {

using soak::SoakOptions;
using soak::SoakReport;

class Soak final : public Command {
 public:
  const char* name() const override { return "soak"; }
  const char* summary() const override {
    return "Serve random traffic on many streams at once, checking rows of every step";
  }

  void add_options(CLI::App& app) override {
    app.add_option("--seconds", options_.seconds, "How long; no step begins later")
        ->capture_default_str()
        ->check(number(1e-3, 1e9));
    count(app, "--rows", options_.rows,
          "Stop after so many rows; fewer in the time are a failure (default: what the time "
          "allows)");
    count(app, "--steps", options_.steps, "Steps of each stream (default: what the time allows)");
    app.add_option("--threads", threads_, "Host threads (default: all usable cores)")
        ->check(whole_number<std::int64_t>(1, 1024));
    app.add_option("--streams", options_.streams, "Streams of each thread")
        ->capture_default_str()
        ->check(whole_number<std::int64_t>(1, 64));
    add_device_option(app, device_);
    count(app, "--rows-per-step", options_.rows_per_step, "Most rows that a step is checked by")
        ->capture_default_str();
    app.add_option("--seed", options_.seed, "Seed of everything that is drawn")
        ->capture_default_str()
        ->check(whole_number<std::uint64_t>());
    app.add_option("--lane", options_.lane,
                   "Run the stream of this number alone, as a report names it")
        ->check(whole_number<std::int64_t>(0));
    app.add_option("--fault", options_.fault_step,
                   "Spoil a row in this step of stream 0, to see that it is found")
        ->type_name("STEP")
        ->check(whole_number<std::int64_t>(0));
  }

  int run(Console& console) override {
    options_.threads = threads_ > 0 ? threads_ : cpu_info().threads;
    if (options_.lane >= 0) options_.threads = options_.lane / options_.streams + 1;
    const std::string where = device_name(*choose_place("soak", device_));
    console.print("{} host threads with {} streams each on {}, seed {}\n", options_.threads,
                  options_.streams, where, options_.seed);
    std::fflush(stdout);
    std::optional<Progress> progress(std::in_place, console, "soak", "rows", 0);
    const SoakReport report = soak::run_soak(
        options_, [&] { return choose_place("soak", where); },
        [&](std::int64_t rows) { progress->update(rows); });
    progress.reset();
    if (console.text()) soak::print_report(console, report);
    if (console.wants_json()) console.report(soak::report_json(report, environment_json(console)));
    return report.passed() ? exit_ok : exit_check_failed;
  }

 private:
  /// An option of a number from 1 up.
  static CLI::Option* count(CLI::App& app, const char* name, std::int64_t& value,
                            const char* help) {
    return app.add_option(name, value, help)->check(whole_number<std::int64_t>(1));
  }

  std::string device_ = "auto";
  std::int64_t threads_ = 0;
  SoakOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_soak() { return std::make_unique<Soak>(); }

}  // namespace msa::cli
