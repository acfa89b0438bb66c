// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/bench/grid.h"
#include "cli/bench/report.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/system_info.h"
#include "cpu/isa.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

constexpr double gigabyte = 1e9;

/// Pool of K and V: four GB where the machine has plenty, on a device twelve, so that a page is met
/// again only after far more than a cache holds (one of half a GB, shared by many machines,
/// exists); with the index keys' half of it never more than a quarter of the memory.
double default_pool_gb(const Place& place) {
  const bool host = place.is_host();
  const double memory = static_cast<double>(host ? static_cast<std::size_t>(machine_info().memory)
                                                 : place.available_bytes());
  return std::min((host ? 4.2 : 12) * gigabyte, memory / 4 / 1.5) / gigabyte;
}

/// Restricts calls to one backend while it lives; "": leaves the choice as it is.
class BackendChoice {
 public:
  explicit BackendChoice(const std::string& name) : restricts_(!name.empty()) {
    if (!restricts_) return;
    const char* value = std::getenv(variable);
    if (value != nullptr) before_ = value;
    setenv(variable, name.c_str(), 1);
  }
  BackendChoice(const BackendChoice&) = delete;
  BackendChoice& operator=(const BackendChoice&) = delete;
  ~BackendChoice() {
    if (!restricts_) return;
    if (before_) {
      setenv(variable, before_->c_str(), 1);
    } else {
      unsetenv(variable);
    }
  }

 private:
  static constexpr const char* variable = "MSA_BACKEND";
  bool restricts_;
  std::optional<std::string> before_;
};

/// What the results are compared with: a report's medians, or another target of the same run.
struct Baseline {
  std::map<std::string, double> medians;
  std::optional<cpu::Isa> isa;
  std::string backend;

  bool given() const { return isa || !backend.empty() || !medians.empty(); }
  bool in_this_run() const { return isa || !backend.empty(); }
};

class Bench final : public Command {
 public:
  const char* name() const override { return "bench"; }
  const char* summary() const override {
    return "Time the operators and compare with what the machine can do";
  }

  void add_options(CLI::App& app) override {
    app.add_option("op", op_, "decode, prefill, index, write, layer or all")
        ->type_name("OP")
        ->check(CLI::IsMember({"decode", "prefill", "index", "write", "layer", "all"}));
    const char* shapes = "Shapes (lists separated by commas; they replace values of the grid)";
    const auto list = [&](const char* option, auto& values, const char* type, const char* help) {
      return app.add_option(option, values, help)
          ->type_name(type)
          ->delimiter(',')
          ->allow_extra_args(false)
          ->group(shapes);
    };
    const auto counts = [&](const char* option, std::vector<std::int64_t>& values, const char* type,
                            const char* help) {
      list(option, values, type, help)->check(whole_number<std::int64_t>(0));
    };
    list("--shard", shapes_.shard, "HQ/HKV", "Query and KV heads");
    list("--kv", shapes_.kv, "TYPE", "Cache type: bf16, f16, e4m3, e5m2");
    list("--layout", shapes_.layout, "NAME", "Cache layout: LBHNC, LBNHC, LHBNC, …");
    counts("--batch", shapes_.batch, "N", "Requests");
    counts("--m", shapes_.m, "M", "Query tokens of a decode request");
    counts("--tokens", shapes_.tokens, "N", "Query tokens of a prefill request");
    counts("--context", shapes_.context, "N", "Keys of a request (prefill: before its tokens)");
    list("--keep", shapes_.keep, "X", "Share of blocks kept from token to token (prefill)")
        ->check(number(0, 1));
    list("--seed", shapes_.seed, "N", "Seed of selections and tables")
        ->check(whole_number<std::uint64_t>());
    app.add_flag("--dense", shapes_.dense,
                 "Rows of decode and layer attend to all visible blocks, without an index")
        ->group(shapes);
    app.add_option("--workloads", workloads_, "JSON lines, one workload a line")->type_name("FILE");
    add_device_option(app, device_);
    app.add_option("--backend", backend_,
                   "A backend's name, or all of the device's (default: those that calls choose)")
        ->type_name("NAME");
    app.add_option("--baseline", baseline_,
                   "Compare with an earlier JSON report, or with a backend or an instruction set "
                   "measured in the same run")
        ->type_name("FILE|NAME");
    app.add_option("--min-time", effort_.min_seconds, "Seconds to measure each case (default 1)")
        ->type_name("S")
        ->check(number(0, 3600));
    app.add_option("--pool-gb", pool_gb_,
                   "Size of the paged cache in GB (default: about 4, on a device 12)")
        ->type_name("GB")
        ->check(number(0.001, 4096));
    add_file_option(app, "--csv", csv_, "a CSV table");
    app.footer(
        "A line for each case: median time of a call, 10th to 90th percentile, useful operations\n"
        "and compulsory bytes a second, and the share of what the machine can do (c: limited by\n"
        "arithmetic, m: by memory), both limits measured in the same run. Successive calls use\n"
        "other pages, so that none is found in a processor cache. On a device a time is that of a\n"
        "graph of twenty calls or more, divided by their number.");
  }

  std::vector<NamedFile> inputs() const override {
    std::vector<NamedFile> files;
    if (!workloads_.empty()) files.push_back({"--workloads", workloads_});
    if (std::filesystem::exists(baseline_)) files.push_back({"--baseline", baseline_});
    return files;
  }
  std::vector<NamedFile> outputs() const override {
    if (!csv_) return {};
    return {{"--csv", *csv_}};
  }

  int run(Console& console) override {
    if (csv_ && Console::is_stdout(*csv_)) {
      if (console.json_to_stdout()) {
        throw Error(ErrorCode::invalid_argument, "bench: --csv and --json cannot share stdout");
      }
      console.take_stdout();
    }
    const std::vector<Workload> workloads = chosen_workloads();
    check_backend();
    const std::unique_ptr<Place> place =
        choose_place("bench", device_, backend_ == "all" ? "" : backend_);
    const std::vector<std::string> backends = chosen_backends(*place);
    const Baseline baseline = chosen_baseline(*place);
    Pools pools(*place, checked_pool_bytes(*place));
    pools.fill_main(DType::bf16);
    const Limits limits = measure_limits(pools);
    print_machine(console, *place, limits);
    print_header(console, !place->is_host(), baseline.given());

    Progress progress(console, "bench", "cases",
                      static_cast<std::int64_t>(workloads.size() * backends.size()));
    std::vector<CaseResult> results;
    for (const Workload& workload : workloads) {
      for (const std::string& backend : backends) {
        progress.update(static_cast<std::int64_t>(results.size()));
        results.push_back(measure_case(workload, backend, baseline, pools));
        progress.clear();
        print_result(console, results.back(), limits, baseline.given());
      }
    }
    if (csv_) write_text(*csv_, to_csv(results, limits));
    report(console, results, limits, pools);
    return exit_code(results);
  }

 private:
  std::vector<Workload> chosen_workloads() const {
    if (!workloads_.empty() && shapes_.any()) {
      throw Error(ErrorCode::invalid_argument,
                  "bench: shapes come from --workloads or from options, not from both");
    }
    const std::vector<Workload> grid =
        workloads_.empty() ? default_grid() : read_workloads(workloads_);
    std::vector<Workload> chosen = shaped(grid, op_, shapes_);
    if (chosen.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("bench: {} holds no {} workload", workloads_, op_));
    }
    return chosen;
  }

  /// \throws Error where `--backend` names one that is off or that nobody knows.
  void check_backend() const {
    if (backend_.empty() || backend_ == "all") return;
    std::vector<std::string> names;
    for (const BackendInfo& info : backends()) {
      names.push_back(info.name);
      if (backend_ != info.name) continue;
      if (info.reasons.empty()) return;
      throw Error(ErrorCode::unsupported, fmt::format("bench: backend {} is off: {}", info.name,
                                                      fmt::join(info.reasons, "; ")));
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("bench: there is no backend '{}'; allowed in this build: {}, all",
                            backend_, fmt::join(names, ", ")));
  }

  /// Backends that are on and take the place's tensors.
  static std::vector<std::string> backends_of(const Place& place) {
    std::vector<std::string> names;
    for (const BackendInfo& info : backends()) {
      if (info.reasons.empty() && place.is_host() == (info.name == "cpu")) {
        names.push_back(info.name);
      }
    }
    return names;
  }

  /// Names of the backends to measure; "": whichever each call chooses.
  std::vector<std::string> chosen_backends(const Place& place) const {
    if (backend_ == "all") return backends_of(place);
    return {backend_};
  }

  Baseline chosen_baseline(const Place& place) const {
    Baseline baseline;
    if (baseline_.empty()) return baseline;
    if (std::filesystem::exists(baseline_)) {
      baseline.medians = read_baseline(baseline_);
      return baseline;
    }
    std::vector<std::string> allowed;
    if (place.is_host()) {
      for (const cpu::Isa isa : cpu::available_isas()) {
        allowed.emplace_back(cpu::name(isa));
        if (baseline_ == allowed.back()) baseline.isa = isa;
      }
    }
    for (const std::string& backend : backends_of(place)) {
      allowed.push_back(backend);
      if (baseline_ == backend) baseline.backend = backend;
    }
    if (!baseline.in_this_run()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("bench: --baseline is '{}'; expected a JSON report or one of {}",
                              baseline_, fmt::join(allowed, ", ")));
    }
    return baseline;
  }

  std::size_t checked_pool_bytes(const Place& place) const {
    const double wanted = (pool_gb_ ? *pool_gb_ : default_pool_gb(place)) * gigabyte;
    const double available = static_cast<double>(place.available_bytes());
    if (available > 0 && 1.5 * wanted > available) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("bench: a pool of {} and its index keys do not fit the {} of memory "
                              "that is available; lower --pool-gb",
                              format_bytes(wanted), format_bytes(available)));
    }
    return static_cast<std::size_t>(wanted);
  }

  CaseResult measure_case(const Workload& workload, const std::string& backend,
                          const Baseline& baseline, Pools& pools) const {
    CaseResult result;
    result.workload = workload;
    result.backend = backend;
    result.device = device_name(pools.place);
    if (pools.place.is_host()) result.isa = cpu_info().isa;
    try {
      const BackendChoice choice(backend);
      const std::unique_ptr<BenchCase> bench = make_case(workload, pools);
      result.timing = time(*bench, pools.place);
      if (backend.empty()) result.backend = bench->backend();
      result.work = bench->work();
      result.baseline = baseline_seconds(*bench, label(workload), baseline, pools.place);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      result.unsupported = error.failures().front();
    }
    return result;
  }

  Timing time(BenchCase& bench, Place& place) const {
    const auto call = [&](std::int64_t i) { bench.call(i); };
    return place.is_host() ? measure(call, effort_)
                           : measure_recorded(place, call, bench.sets(), effort_);
  }

  double baseline_seconds(BenchCase& bench, const std::string& label, const Baseline& baseline,
                          Place& place) const {
    if (baseline.isa) {
      const cpu::Isa chosen = cpu::chosen_isa();
      cpu::set_isa_for_testing(*baseline.isa);
      const double median = time(bench, place).median;
      cpu::set_isa_for_testing(chosen);
      return median;
    }
    if (!baseline.backend.empty()) {
      const BackendChoice choice(baseline.backend);
      return time(bench, place).median;
    }
    const auto found = baseline.medians.find(label);
    return found == baseline.medians.end() ? 0 : found->second;
  }

  static void print_machine(const Console& console, const Place& place, const Limits& limits) {
    if (place.is_host()) {
      console.print("{}, {} threads, {}; limits: {:.1f} GFLOP/s, {:.2f} GB/s\n\n",
                    machine_info().cpu, cpu_info().threads, cpu_info().isa, limits.flops * 1e-9,
                    limits.bandwidth * 1e-9);
      return;
    }
    std::vector<std::string> rates;
    for (const auto& [rate, bytes] : limits.rates) {
      rates.push_back(fmt::format("{} {:.2f}", rate, bytes * 1e-12));
    }
    console.print("{}; limits: {:.0f} TFLOP/s, {:.2f} TB/s ({})\n\n", place.description(),
                  limits.flops * 1e-12, limits.bandwidth * 1e-12, fmt::join(rates, ", "));
  }

  void report(const Console& console, const std::vector<CaseResult>& results, const Limits& limits,
              const Pools& pools) const {
    if (!console.wants_json()) return;
    Json cases = Json::array();
    for (const CaseResult& result : results) cases.push_back(to_json(result, limits));
    Json rates = Json::object();
    for (const auto& [rate, bytes] : limits.rates) rates[rate] = bytes * 1e-9;
    console.report({{"environment", environment_json(console)},
                    {"device", pools.place.description()},
                    {"limits",
                     {{"gflops", limits.flops * 1e-9},
                      {"gbps", limits.bandwidth * 1e-9},
                      {"rates_gbps", rates},
                      {"pool_bytes", pools.main.bytes()}}},
                    {"min_time_s", effort_.min_seconds},
                    {"baseline", baseline_},
                    {"cases", cases}});
  }

  static int exit_code(const std::vector<CaseResult>& results) {
    const bool served = std::any_of(results.begin(), results.end(),
                                    [](const CaseResult& r) { return r.unsupported.empty(); });
    return served ? exit_ok : exit_no_device;
  }

  std::string op_ = "all";
  ShapeOptions shapes_;
  std::string workloads_;
  std::string device_ = "auto";
  std::string backend_;
  std::string baseline_;
  Effort effort_;
  std::optional<double> pool_gb_;
  std::optional<std::string> csv_;
};

}  // namespace

std::unique_ptr<Command> make_bench() { return std::make_unique<Bench>(); }

}  // namespace msa::cli
