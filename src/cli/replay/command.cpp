// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/options.h"
#include "cli/place.h"
#include "cli/replay/plot.h"
#include "cli/replay/replay.h"
#include "cli/replay/report.h"
#include "cli/replay/trace.h"
#include "cli/system_info.h"
#include "cpu/parallel.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

using replay::LayerShape;
using replay::ReplayOptions;
using replay::ReplayReport;

/// "HQ/HKV", one index head a KV head as in MiniMax-M3.
LayerShape parse_shard(const std::string& text) {
  LayerShape shape;
  const char* const end = text.data() + text.size();
  const auto q = std::from_chars(text.data(), end, shape.q_heads);
  const bool slash = q.ec == std::errc{} && q.ptr != end && *q.ptr == '/';
  const auto kv = std::from_chars(slash ? q.ptr + 1 : end, end, shape.kv_heads);
  if (!slash || kv.ec != std::errc{} || kv.ptr != end) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("replay: 'shard' is '{}'; allowed: HQ/HKV, as 64/4 or 16/1", text));
  }
  shape.index_heads = shape.kv_heads;
  return shape;
}

template <class T>
T parse_name(std::optional<T> value, const char* option, const std::string& text,
             const char* allowed) {
  if (value) return *value;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("replay: '{}' is '{}'; allowed: {}", option, text, allowed));
}

class Replay final : public Command {
 public:
  const char* name() const override { return "replay"; }
  const char* summary() const override {
    return "Serve a request trace through sparse attention layers, checking as it goes";
  }

  void add_options(CLI::App& app) override {
    app.add_option("trace", trace_, "Mooncake JSON lines or Azure CSV")
        ->required()
        ->type_name("TRACE");
    add_amount(app);
    add_layer(app);
    add_serving(app);
    add_count(app, "--verify-rows", options_.verify_rows,
              "Rows checked against the f64 reference each step (default: what some percent of "
              "the time pay for)");
    app.add_option("--seed", options_.seed, "Seed of activations, drafts and samples")
        ->capture_default_str()
        ->check(whole_number<std::uint64_t>());
    app.add_option("--plot", plot_, "Draw the run into an SVG file; - is stdout")
        ->type_name("FILE");
  }

  std::vector<NamedFile> inputs() const override { return {{"TRACE", trace_}}; }
  std::vector<NamedFile> outputs() const override {
    if (plot_.empty()) return {};
    return {{"--plot", plot_}};
  }

  int run(Console& console) override {
    if (!plot_.empty() && Console::is_stdout(plot_)) {
      if (console.json_to_stdout()) {
        throw Error(ErrorCode::invalid_argument, "replay: --plot and --json cannot share stdout");
      }
      console.take_stdout();
    }
    options_.shape = parse_shard(shard_);
    options_.kv_type = parse_name(parse_dtype(kv_), "kv", kv_, "bf16, f16, e4m3, e5m2");
    options_.index_type = parse_name(parse_dtype(index_kv_), "index-kv", index_kv_, "bf16, e4m3");
    options_.layout = parse_name(parse_kv_layout(layout_), "layout", layout_,
                                 "LBHNC (HND), LBNHC (NHD), LHBNC, BLHNC, BLNHC, BHLNC");
    // The library reads it at the first call, which is yet to come.
    if (threads_ > 0) setenv("MSA_THREADS", std::to_string(threads_).c_str(), 1);
    const std::unique_ptr<Place> place = choose_place("replay", device_);
    const std::vector<replay::TraceRequest> trace = replay::load_trace(trace_);
    std::optional<Progress> progress;
    replay::ReplayHooks hooks;
    hooks.on_start = [&](const ReplayReport& report, std::int64_t tokens) {
      announce(console, *place, report);
      progress.emplace(console, "replay", "tokens", tokens);
    };
    hooks.on_step = [&](std::int64_t tokens) { progress->update(tokens); };
    const ReplayReport report = replay::run_replay(trace, options_, hooks, *place);
    progress->clear();
    if (console.text()) replay::print_report(console, trace_, report);
    if (console.wants_json()) {
      console.report(replay::report_json(trace_, report, environment_json(console)));
    }
    if (!plot_.empty()) write_text(plot_, replay::plot_svg(trace_, report));
    return replay::cli_exit_code(report.checks);
  }

 private:
  void add_amount(CLI::App& app) {
    auto* requests = add_count(app, "--requests", options_.requests,
                               "Serve the first N requests (default: what the budget allows)");
    app.add_flag("--all", options_.all, "Serve the whole trace")->excludes(requests);
    app.add_option("--budget-seconds", options_.budget_seconds,
                   "Time to plan for where the number of requests is not given")
        ->capture_default_str()
        ->check(number(1e-3, 1e9));
  }

  void add_layer(CLI::App& app) {
    app.add_option("--shard", shard_, "Query heads/KV heads of the tensor-parallel shard")
        ->type_name("HQ/HKV")
        ->capture_default_str();
    app.add_option("--layers", options_.layers,
                   "Layers of each step, alike, each with caches of its own")
        ->type_name("N")
        ->capture_default_str()
        ->check(whole_number<std::int64_t>(1, replay::Engine::most_layers));
    app.add_option("--kv", kv_, "Type of the main cache: bf16, f16, e4m3, e5m2")
        ->capture_default_str();
    app.add_option("--index-kv", index_kv_, "Type of the index cache: bf16, e4m3")
        ->capture_default_str();
    app.add_option("--layout", layout_, "Order of the main cache, outermost dimension first")
        ->capture_default_str();
    add_device_option(app, device_);
    app.add_flag(
        "--eager", options_.eager,
        "Call the operators of every step; else a device captures decode steps in CUDA graphs, one "
        "for each power of two of requests up to 512, and replays them");
    app.add_option("--threads", threads_, "Threads, as MSA_THREADS (default: all usable cores)")
        ->check(whole_number<int>(1, cpu::most_threads));
  }

  void add_serving(CLI::App& app) {
    add_count(app, "--chunk", options_.chunk, "Tokens of a step; prompts are split accordingly")
        ->capture_default_str();
    add_count(app, "--max-batch", options_.max_batch, "Requests running at once")
        ->capture_default_str();
    app.add_option("--draft", options_.draft, "Draft tokens of a speculative decode step, 0 to 15")
        ->capture_default_str()
        ->check(whole_number<std::int64_t>(0, max_decode_query_len - 1));
    add_count(app, "--pages", options_.pages,
              "Pages of a layer's main cache (default: what the trace needs, within 1.5 GB)");
  }

  /// An option of a number from 1 up.
  static CLI::Option* add_count(CLI::App& app, const char* name, std::int64_t& value,
                                const char* help) {
    return app.add_option(name, value, help)->check(whole_number<std::int64_t>(1));
  }

  void announce(const Console& console, const Place& place, const ReplayReport& report) const {
    const ReplayOptions& o = report.options;
    const CpuInfo cpu = cpu_info();
    const std::string where = place.is_host()
                                  ? fmt::format("cpu {}, {} threads", cpu.isa, cpu.threads)
                                  : place.description();
    console.print("{}: {} of {} requests, seed {}\n", trace_, o.requests, report.trace_requests,
                  o.seed);
    console.print("{} {}/{}, index heads {}; cache {} {}, index {}; {} pages, {}\n",
                  o.layers == 1 ? "layer" : fmt::format("{} layers", o.layers), o.shape.q_heads,
                  o.shape.kv_heads, o.shape.index_heads, msa::name(o.kv_type), msa::name(o.layout),
                  msa::name(o.index_type), o.pages,
                  format_bytes(static_cast<double>(report.cache_bytes)));
    console.print("batch {}, chunk {}, draft {}; {}\n", o.max_batch, o.chunk, o.draft, where);
    if (report.predicted_seconds > 0) {
      console.print("calibrated in {}: {} requests should take {}; the same again with\n  {}\n",
                    format_seconds(report.calibration_seconds), o.requests,
                    format_seconds(report.predicted_seconds),
                    replay::reproducing_command(trace_, o, report.device));
    }
    std::fflush(stdout);
  }

  std::string trace_, plot_;
  std::string shard_ = "16/1", kv_ = "bf16", index_kv_ = "bf16", layout_ = "LBHNC";
  std::string device_ = "auto";
  int threads_ = 0;
  ReplayOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_replay() { return std::make_unique<Replay>(); }

}  // namespace msa::cli
