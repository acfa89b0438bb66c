// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/output.h"
#include "cli/replay/calibrate.h"
#include "common/numeric.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::replay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double default_cache_bytes = 1.5e9;
// Of the budget, what is planned for: predictions are good to some percent.
constexpr double planned_share = 0.95;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int64_t pages_for(const TraceRequest& request, std::int64_t m) {
  return (request.input_length + request.output_length + m + page_size - 1) / page_size;
}

void check(std::span<const TraceRequest> trace, const ReplayOptions& o) {
  std::vector<std::string> faults;
  const auto require = [&faults](bool ok, std::string fault) {
    if (!ok) faults.push_back("replay: " + std::move(fault));
  };
  const auto trace_size = static_cast<std::int64_t>(trace.size());
  const LayerShape& s = o.shape;
  require(o.requests >= 0 && o.requests <= trace_size,
          fmt::format("'requests' is {}; allowed: 1 to {}, what the trace holds", o.requests,
                      trace_size));
  require(s.kv_heads >= 1 && s.kv_heads <= max_index_heads && s.q_heads >= 1 &&
              s.q_heads % std::max<std::int64_t>(s.kv_heads, 1) == 0 &&
              s.q_heads <= s.kv_heads * max_group,
          fmt::format("'shard' is {}/{}; allowed: 1 to {} KV heads with 1 to {} query heads each",
                      s.q_heads, s.kv_heads, max_index_heads, max_group));
  require(o.layers >= 1 && o.layers <= Engine::most_layers,
          fmt::format("'layers' is {}; allowed: 1 to {}", o.layers, Engine::most_layers));
  require(o.kv_type == DType::bf16 || o.kv_type == DType::f16 || is_fp8(o.kv_type),
          fmt::format("'kv' is {}; allowed: bf16, f16, e4m3, e5m2", name(o.kv_type)));
  require(o.index_type == DType::bf16 || o.index_type == DType::e4m3,
          fmt::format("'index-kv' is {}; allowed: bf16, e4m3", name(o.index_type)));
  require(o.budget_seconds > 0,
          fmt::format("'budget-seconds' is {}; allowed: more than 0", o.budget_seconds));
  require(o.verify_rows >= 0,
          fmt::format("'verify-rows' is {}; allowed: 0 or more", o.verify_rows));
  if (!faults.empty()) throw Error(ErrorCode::invalid_argument, faults);
}

/// Bytes of a page of a layer's main cache and of its index cache.
std::pair<double, double> page_bytes(const ReplayOptions& o) {
  return {static_cast<double>(o.shape.kv_heads * page_size * 2 * head_dim) *
              static_cast<double>(size_of(o.kv_type)),
          static_cast<double>(page_size * head_dim) * static_cast<double>(size_of(o.index_type))};
}

SchedulerConfig scheduler_config(const ReplayOptions& o) {
  SchedulerConfig config;
  config.max_batch = o.max_batch;
  config.chunk = o.chunk;
  config.draft = o.draft;
  config.pages = o.pages;
  config.seed = o.seed;
  return config;
}

EngineConfig engine_config(std::span<const TraceRequest> trace, const ReplayOptions& o,
                           const SchedulerConfig& scheduler, bool graphs) {
  EngineConfig config;
  config.shape = o.shape;
  config.layers = o.layers;
  config.kv_type = o.kv_type;
  config.index_type = o.index_type;
  config.layout = o.layout;
  config.pages = scheduler.pages;
  config.index_pages = scheduler.index_pages();
  config.max_tokens = scheduler.max_tokens();
  config.max_batch = scheduler.max_batch;
  config.decode_query_len = scheduler.decode_query_len();
  config.seed = o.seed;
  config.graphs = graphs;
  for (const TraceRequest& r : trace) {
    config.max_seq_len = std::max(config.max_seq_len,
                                  r.input_length + r.output_length + scheduler.decode_query_len());
  }
  return config;
}

/// Sets `requests` by a calibration where neither it nor `all` was given.
void choose(ReplayReport& report, Engine& engine, std::span<const TraceRequest> trace,
            std::span<const Content> contents, const SchedulerConfig& config,
            const VerifierConfig& verifier, Clock::time_point start) {
  ReplayOptions& o = report.options;
  if (o.all) o.requests = static_cast<std::int64_t>(trace.size());
  if (o.requests > 0) return;
  const CostModel model = calibrate(engine, verifier);
  report.calibration_seconds = seconds_since(start);
  const double left = planned_share * o.budget_seconds - report.calibration_seconds;
  o.requests = choose_requests(model, o.shape, trace, contents, config, left);
  const auto n = static_cast<std::size_t>(o.requests);
  report.predicted_seconds =
      predict_seconds(model, o.shape, trace.first(n), contents.first(n), config);
}

StepRecord record_of(const StepPlan& plan) {
  StepRecord record;
  record.decode_tokens = plan.decode_tokens;
  record.prefill_tokens = plan.prefill_tokens;
  record.running = plan.running;
  record.pages_in_use = plan.pages_in_use;
  record.pages_cached = plan.pages_cached;
  return record;
}

void serve(ReplayReport& report, Engine& engine, Scheduler& scheduler, Verifier& verifier,
           std::span<const Content> contents, const ReplayHooks& hooks) {
  const Clock::time_point start = Clock::now();
  std::int64_t tokens = 0;
  Clock::time_point step_start = start;
  while (const StepPlan* plan = scheduler.next()) {
    StepRecord record = record_of(*plan);
    record.start = std::chrono::duration<double>(step_start - start).count();
    const double planning = seconds_since(step_start);
    record.times = engine.run(*plan, contents);

    const Clock::time_point computed = Clock::now();
    if (plan->prefill_tokens == 0) record.bytes = engine.bytes(*plan);
    StepTensors tensors = engine.tensors();
    if (hooks.on_computed) hooks.on_computed(*plan, tensors);
    verifier.check(*plan, tensors);
    report.locality.add(*plan, tensors.selection);
    record.times[Phase::verify] = seconds_since(computed);

    const Clock::time_point checked = Clock::now();
    tokens += plan->tokens();
    scheduler.complete();
    record.times[Phase::schedule] = planning + seconds_since(checked);
    report.steps.push_back(record);
    if (hooks.on_step) hooks.on_step(tokens);
    step_start = Clock::now();
  }
  report.serving_seconds = seconds_since(start);
}

}  // namespace

void Locality::add(const StepPlan& plan, const ConstTensor& selection) {
  const std::int64_t lists = selection.shape[1], topk = selection.shape[2];
  std::int64_t token = 0;
  for (const StepItem& item : plan.items) {
    for (std::int64_t i = 1; i < item.query_len; ++i) {
      // Where every block is selected there is nothing to compare.
      if ((item.first_position + i - 1) / page_size < topk) continue;
      for (std::int64_t list = 0; list < lists; ++list) {
        const auto* b = selection.ptr<std::int32_t>() + (token + i) * selection.stride[0] +
                        list * selection.stride[1];
        const auto* a = b - selection.stride[0];
        std::int64_t common = 0, x = 0, y = 0;
        while (x < topk && y < topk) {  // both ascending
          common += a[x] == b[y] ? 1 : 0;
          const bool step_x = a[x] <= b[y], step_y = b[y] <= a[x];
          x += step_x ? 1 : 0;
          y += step_y ? 1 : 0;
        }
        sum += static_cast<double>(common) / static_cast<double>(2 * topk - common);
        ++pairs;
      }
    }
    token += item.query_len;
  }
}

std::int64_t default_pages(std::span<const TraceRequest> trace, const ReplayOptions& o) {
  std::int64_t longest = 0, all = 0;
  for (const TraceRequest& request : trace) {
    const std::int64_t pages = pages_for(request, 1 + o.draft);
    longest = std::max(longest, pages);
    all += pages;
  }
  const auto [main_bytes, index_bytes] = page_bytes(o);
  const auto fit = static_cast<std::int64_t>(default_cache_bytes / (main_bytes + index_bytes));
  return std::max(std::min(all, fit), longest) + 1;  // and the null page
}

namespace {

/// Refuses caches that the place has no memory for, before an allocator makes a list of their
/// pages.
void check_memory(const ReplayOptions& o, const SchedulerConfig& config, const Place& place) {
  const auto [main_bytes, index_bytes] = page_bytes(o);
  const double wanted =
      static_cast<double>(o.layers) * (static_cast<double>(config.pages) * main_bytes +
                                       static_cast<double>(config.index_pages()) * index_bytes);
  const auto available = static_cast<double>(place.available_bytes());
  if (available <= 0 || wanted <= available) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("replay: 'pages' is {}, caches of {}; allowed: what fits the {} of memory "
                  "that is available",
                  o.pages, cli::format_bytes(wanted), cli::format_bytes(available)));
}

}  // namespace

ReplayReport run_replay(std::span<const TraceRequest> trace, const ReplayOptions& options,
                        const ReplayHooks& hooks, Place& place) {
  const Clock::time_point start = Clock::now();
  check(trace, options);
  ReplayReport report;
  report.options = options;
  report.trace_requests = static_cast<std::int64_t>(trace.size());
  report.device = cli::device_name(place);
  ReplayOptions& o = report.options;
  if (o.pages == 0) o.pages = default_pages(trace, o);
  const SchedulerConfig config = scheduler_config(o);
  const std::vector<Content> all_contents = contents_of(trace, o.seed);
  const std::span<const Content> contents(all_contents);
  check_memory(o, config, place);
  // Refuses what cannot be scheduled before any memory is taken.
  const auto candidates = o.requests > 0 ? static_cast<std::size_t>(o.requests) : trace.size();
  static_cast<void>(Scheduler(trace.first(candidates), contents.first(candidates), config));

  Engine engine(engine_config(trace, o, config, !o.eager && !place.is_host()), place);
  report.cache_bytes = engine.cache_bytes();
  const VerifierConfig verifier_config{.rows_per_step = o.verify_rows, .seed = o.seed};
  choose(report, engine, trace, contents, config, verifier_config, start);

  const auto n = static_cast<std::size_t>(o.requests);
  std::int64_t tokens = 0;
  simulate(trace.first(n), contents.first(n), config,
           [&](const StepPlan& plan) { tokens += plan.tokens(); });
  if (hooks.on_start) hooks.on_start(report, tokens);
  Scheduler scheduler(trace.first(n), contents.first(n), config);
  Verifier verifier(verifier_config);
  serve(report, engine, scheduler, verifier, contents, hooks);
  report.scheduler = scheduler.stats();
  report.checks = verifier.report();
  report.digest = engine.digest();
  report.backend = last_backend();
  report.captured = engine.captured();
  report.memory_rate = engine.measure_memory();
  return report;
}

}  // namespace msa::replay
