// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/report.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "msa/error.h"

namespace msa::cli {
namespace {

constexpr const char* case_format = "{:<74}{:>10}  {:>20}{:>9}{:>8}{:>8}";

const char* bound_of(const CaseResult& result, const Limits& limits) {
  return compute_bound(limits, result.work.flops, result.work.bytes) ? "compute" : "memory";
}

double milliseconds(double seconds) { return seconds * 1e3; }

/// What a table's columns count.
struct Units {
  const char* time;
  double per_second;
  const char* flops;
  const char* bytes;
  double per_giga;
  int decimals;  // of rates
};
constexpr Units cpu_units{"median ms", 1e3, "GFLOP/s", "GB/s", 1, 1};
constexpr Units device_units{"median us", 1e6, "TFLOP/s", "TB/s", 1e-3, 2};

const Units& units_of(bool on_device) { return on_device ? device_units : cpu_units; }

}  // namespace

double CaseResult::percent(const Limits& limits) const {
  return 100 * best_seconds(limits, work.flops, work.bytes) / timing.median;
}

void print_header(const Console& console, bool on_device, bool with_baseline) {
  const Units& units = units_of(on_device);
  console.print(fmt::runtime(std::string(case_format) + "{}\n"), "case", units.time, "p10–p90",
                units.flops, units.bytes, "limit", with_baseline ? "  against baseline" : "");
}

void print_result(const Console& console, const CaseResult& r, const Limits& limits,
                  bool with_baseline) {
  const std::string title = fmt::format("{}  {}", label(r.workload), r.backend);
  if (!r.unsupported.empty()) {
    console.print("{:<74}  not served: {}\n", title, r.unsupported);
    return;
  }
  std::string compared;
  if (with_baseline) {
    compared = r.baseline > 0 ? fmt::format("  {:.2f}x", r.speedup()) : "  (not in the baseline)";
  }
  const Units& units = units_of(r.on_device());
  const auto time = [&](double seconds) {
    return fmt::format("{:.3f}", seconds * units.per_second);
  };
  console.print(fmt::runtime(std::string(case_format) + "{}\n"), title, time(r.timing.median),
                time(r.timing.p10) + "–" + time(r.timing.p90),
                fmt::format("{:.{}f}", r.gflops() * units.per_giga, units.decimals),
                fmt::format("{:.2f}", r.gbps() * units.per_giga),
                fmt::format("{:.0f} % {}", r.percent(limits), bound_of(r, limits)[0]), compared);
}

std::string to_csv(const std::vector<CaseResult>& results, const Limits& limits) {
  std::string text =
      "op,hq,hkv,kv,layout,m,tokens,batch,context,keep,seed,backend,isa,median_ms,p10_ms,p90_ms,"
      "calls,gflops,gbps,bound,percent_of_limit,speedup,device,dense\n";
  for (const CaseResult& r : results) {
    if (!r.unsupported.empty()) continue;
    const Workload& w = r.workload;
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{:.6f},{:.6f},{:.6f},{},{:.3f},"
        "{:.3f},{},{:.2f},{},{},{}\n",
        name(w.op), w.hq, w.hkv, name(w.kv), name(w.layout), w.m, w.tokens, w.batch, w.context,
        static_cast<double>(w.keep) / 1000, w.seed, r.backend, r.isa, milliseconds(r.timing.median),
        milliseconds(r.timing.p10), milliseconds(r.timing.p90), r.timing.calls, r.gflops(),
        r.gbps(), bound_of(r, limits), r.percent(limits),
        r.baseline > 0 ? fmt::format("{:.4f}", r.speedup()) : "", r.device, w.dense ? 1 : 0);
  }
  return text;
}

Json to_json(const CaseResult& r, const Limits& limits) {
  Json json = {{"case", label(r.workload)},
               {"workload", to_json(r.workload)},
               {"device", r.device},
               {"backend", r.backend},
               {"isa", r.isa}};
  if (!r.unsupported.empty()) {
    json["unsupported"] = r.unsupported;
    return json;
  }
  json["command"] = fmt::format("{} --device {}", reproducing_command(r.workload), r.device);
  json["median_s"] = r.timing.median;
  json["p10_s"] = r.timing.p10;
  json["p90_s"] = r.timing.p90;
  json["calls"] = r.timing.calls;
  json["flops"] = r.work.flops;
  json["bytes"] = r.work.bytes;
  json["gflops"] = r.gflops();
  json["gbps"] = r.gbps();
  json["bound"] = bound_of(r, limits);
  json["percent_of_limit"] = r.percent(limits);
  if (r.baseline > 0) json["speedup"] = r.speedup();
  return json;
}

std::string reproducing_command(const Workload& w) {
  std::string text = fmt::format("msa bench {} --shard {}/{} --kv {} --layout {} --batch {}",
                                 name(w.op), w.hq, w.hkv, name(w.kv), name(w.layout), w.batch);
  text += w.is_decode() ? fmt::format(" --m {}", w.m) : fmt::format(" --tokens {}", w.tokens);
  return text +
         fmt::format(" --context {} --keep {:g} --seed {}", w.context,
                     static_cast<double>(w.keep) / 1000, w.seed) +
         (w.dense ? " --dense" : "");
}

std::map<std::string, double> read_baseline(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::io, fmt::format("{}: {}", path, std::strerror(errno)));
  const nlohmann::json report = nlohmann::json::parse(file, nullptr, false);
  const auto wrong = [&](const char* what) {
    return Error(ErrorCode::io,
                 fmt::format("{}: {}; expected a report of msa bench --json", path, what));
  };
  if (report.is_discarded()) throw wrong("is not JSON");
  if (!report.is_object() || !report.contains("cases") || !report["cases"].is_array()) {
    throw wrong("has no list 'cases'");
  }
  std::map<std::string, double> medians;
  for (const nlohmann::json& entry : report["cases"]) {
    if (!entry.is_object() || !entry.contains("case") || !entry["case"].is_string()) {
      throw wrong("has an entry without 'case'");
    }
    if (!entry.contains("median_s")) continue;  // the backend did not serve it
    if (!entry["median_s"].is_number() || !(entry["median_s"].get<double>() > 0)) {
      throw wrong("has a 'median_s' that is no time");
    }
    medians.try_emplace(entry["case"].get<std::string>(), entry["median_s"].get<double>());
  }
  return medians;
}

}  // namespace msa::cli
