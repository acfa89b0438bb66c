// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/soak/soak.h"

namespace msa::soak {

void print_report(const cli::Console& console, const SoakReport& report) {
  const LaneStats& s = report.lanes;
  const TrafficStats& t = s.traffic;
  console.print("steps     {} ({} of them recorded), {} tokens, in {}\n", s.steps, s.captured_steps,
                s.tokens, cli::format_seconds(report.seconds));
  console.print("requests  {} arrived ({} forked), {} finished, {} evicted\n", t.arrived, t.forked,
                t.finished, t.evicted);
  console.print("caches    {} allocated for another layer, {} moved; {} pages poisoned\n",
                s.episodes, s.moves, s.pages_poisoned);
  console.print(
      "checked   {} rows against the f64 reference, worst error {:.2f} of what is "
      "allowed; {} free pages\n",
      s.rows, s.worst_share, s.pages_checked);
  if (report.wrong.empty()) {
    console.print("{}\n",
                  report.passed()
                      ? console.styled(cli::Style::good, "nothing wrong")
                      : console.styled(cli::Style::bad, "too few rows were checked in the time"));
    return;
  }
  console.print("{}\n  {}\nagain with\n  {}\n", console.styled(cli::Style::bad, "wrong"),
                report.wrong, report.repeat);
}

cli::Json report_json(const SoakReport& report, cli::Json environment) {
  const SoakOptions& o = report.options;
  const LaneStats& s = report.lanes;
  const TrafficStats& t = s.traffic;
  cli::Json json = {{"command", "soak"},
                    {"passed", report.passed()},
                    {"rows", s.rows},
                    {"steps", s.steps},
                    {"threads", o.threads},
                    {"streams", o.threads * o.streams},
                    {"seconds", report.seconds},
                    {"device", report.device},
                    {"machine", report.machine},
                    {"backends", report.backends},
                    {"seed", o.seed},
                    {"rows_wanted", o.rows},
                    {"rows_per_step", o.rows_per_step},
                    {"tokens", s.tokens},
                    {"recorded_steps", s.captured_steps},
                    {"requests",
                     {{"arrived", t.arrived},
                      {"forked", t.forked},
                      {"finished", t.finished},
                      {"evicted", t.evicted}}},
                    {"caches", {{"allocated", s.episodes}, {"moved", s.moves}}},
                    {"pages", {{"poisoned", s.pages_poisoned}, {"checked", s.pages_checked}}},
                    {"worst_share_of_tolerance",
                     std::isfinite(s.worst_share) ? cli::Json(s.worst_share) : cli::Json()},
                    {"wrong", report.wrong.empty() ? cli::Json() : cli::Json(report.wrong)}};
  if (!report.wrong.empty()) json["repeat"] = report.repeat;
  json["environment"] = std::move(environment);
  return json;
}

}  // namespace msa::soak
