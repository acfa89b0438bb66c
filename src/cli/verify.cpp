// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "api/dispatch.h"
#include "cli/command.h"
#include "cli/filter.h"
#include "cli/system_info.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

using verify::Case;
using verify::Outcome;
using verify::Target;

std::string full_name(const Case& c) { return fmt::format("{}_{}/{}", c.op, c.group, c.name); }

struct Failure {
  std::string name;
  std::string detail;
};

/// What one group of cases found on one target.
struct GroupResult {
  std::string target;
  std::string op;
  std::string group;
  std::int64_t cases = 0;
  double worst = 0;
  double seconds = 0;
  std::vector<Failure> failures;
};

class Verify final : public Command {
 public:
  const char* name() const override { return "verify"; }
  const char* summary() const override {
    return "Check every operator against the f64 reference on a grid of cases";
  }

  void add_options(CLI::App& app) override {
    app.add_option("--filter", filter_,
                   "Only cases whose OP_GROUP/NAME holds TEXT; * and ? match the whole name")
        ->type_name("TEXT");
    app.add_flag("--all-isas", all_isas_, "Every instruction set that this machine can execute");
    app.add_flag("--skip-slow", skip_slow_, "Leave out cases with large reservations");
    app.add_flag("--list", list_, "Print the names of the cases and stop");
    app.footer(
        "A line for each target, operator and group: cases, largest error as a share of what is\n"
        "allowed, PASS or FAIL. Exit code 1 where a case failed.");
  }

  int run(Console& console) override {
    const std::vector<Case> cases = chosen_cases();
    if (cases.empty()) {
      throw Error(ErrorCode::invalid_argument, fmt::format("no case matches '{}'", filter_));
    }
    if (list_) {
      for (const Case& c : cases) fmt::print("{}\n", full_name(c));
      return exit_ok;
    }
    metadata_checks_enabled();  // a wrong MSA_CHECK is wrong usage, not a failure of each case
    const std::vector<Target> targets = chosen_targets();
    if (targets.empty()) refuse_to_verify();

    Progress progress(console, "verify", "cases",
                      static_cast<std::int64_t>(cases.size() * targets.size()));
    console.print("{:<17}{:<14}{:<18}{:>6}{:>10}{:>11}\n", "target", "op", "group", "cases",
                  "worst", "time");
    std::vector<GroupResult> results;
    std::int64_t done = 0;
    for (const Target& target : targets) {
      for (std::size_t i = 0; i < cases.size();) {
        GroupResult group = run_group(cases, i, target, progress, done);
        if (group.cases == 0) continue;
        progress.clear();
        print_group(console, group);
        results.push_back(std::move(group));
      }
    }
    return summarize(console, results);
  }

 private:
  std::vector<Case> chosen_cases() const {
    std::vector<Case> cases;
    for (Case& c : verify::all_cases()) {
      if (skip_slow_ && c.slow) continue;
      if (matches_filter(full_name(c), filter_)) cases.push_back(std::move(c));
    }
    return cases;
  }

  /// Those of the backends that calls may use: a target's cases choose their backend themselves,
  /// whatever MSA_BACKEND says.
  std::vector<Target> chosen_targets() const {
    const std::string chosen = "cpu-" + cpu_info().isa;
    const std::vector<const Backend*> eligible = eligible_backends();
    std::vector<Target> targets;
    for (Target& target : verify::targets()) {
      const auto serves = [&](const Backend* backend) { return target.backend == backend->name(); };
      if (std::none_of(eligible.begin(), eligible.end(), serves)) continue;
      const bool cpu = target.device.type == DeviceType::cpu;
      if (all_isas_ || !cpu || target.name == chosen) targets.push_back(std::move(target));
    }
    return targets;
  }

  [[noreturn]] static void refuse_to_verify() {
    std::vector<std::string> reasons;
    for (const BackendInfo& backend : usable_backends()) {
      for (const std::string& reason : backend.reasons) {
        reasons.push_back(fmt::format("verify: backend {} is off: {}", backend.name, reason));
      }
    }
    reasons.emplace_back("verify: no backend is left that could be verified");
    throw Error(ErrorCode::unsupported, std::move(reasons));
  }

  /// Runs the cases from `i` that share its operator and group; moves `i` behind them.
  static GroupResult run_group(const std::vector<Case>& cases, std::size_t& i, const Target& target,
                               Progress& progress, std::int64_t& done) {
    GroupResult result;
    result.target = target.name;
    result.op = cases[i].op;
    result.group = cases[i].group;
    const auto start = std::chrono::steady_clock::now();
    for (; i < cases.size() && cases[i].op == result.op && cases[i].group == result.group; ++i) {
      progress.update(done++);
      if (!verify::applies(cases[i], target)) continue;
      const Outcome outcome = verify::run(cases[i], target);
      ++result.cases;
      result.worst = std::max(result.worst, outcome.worst);
      if (!outcome.passed) result.failures.push_back({full_name(cases[i]), outcome.detail});
    }
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

  static void print_group(const Console& console, const GroupResult& group) {
    const std::string verdict = group.failures.empty() ? console.styled(Style::good, "PASS")
                                                       : console.styled(Style::bad, "FAIL");
    const std::string worst = group.worst == 0 ? "bits" : fmt::format("{:.3f}", group.worst);
    console.print("{:<17}{:<14}{:<18}{:>6}{:>10}{:>11}  {}\n", group.target, group.op, group.group,
                  group.cases, worst, format_seconds(group.seconds), verdict);
    for (const Failure& failure : group.failures) {
      console.print("    {}\n        {}\n", failure.name, failure.detail);
    }
  }

  static int summarize(const Console& console, const std::vector<GroupResult>& results) {
    std::int64_t cases = 0, failed = 0;
    Json groups = Json::array();
    for (const GroupResult& group : results) {
      cases += group.cases;
      failed += static_cast<std::int64_t>(group.failures.size());
      Json failures = Json::array();
      for (const Failure& f : group.failures) {
        failures.push_back({{"case", f.name}, {"detail", f.detail}});
      }
      groups.push_back({{"target", group.target},
                        {"op", group.op},
                        {"group", group.group},
                        {"cases", group.cases},
                        {"worst", group.worst},
                        {"seconds", group.seconds},
                        {"passed", group.failures.empty()},
                        {"failures", failures}});
    }
    console.print("\n{} cases, {} failed\n", cases, failed);
    console.report({{"environment", environment_json(console)},
                    {"passed", failed == 0},
                    {"cases", cases},
                    {"failed", failed},
                    {"groups", groups}});
    return failed == 0 ? exit_ok : exit_check_failed;
  }

  std::string filter_;
  bool all_isas_ = false;
  bool skip_slow_ = false;
  bool list_ = false;
};

}  // namespace

std::unique_ptr<Command> make_verify() { return std::make_unique<Verify>(); }

}  // namespace msa::cli
