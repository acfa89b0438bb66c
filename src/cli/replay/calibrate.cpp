// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/calibrate.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "cli/replay/work.h"

namespace msa::replay {
namespace {

constexpr std::int64_t most_context = 8192;  // of the synthetic requests
constexpr std::int64_t most_requests = 8;
constexpr int prefill_repeats = 2;
constexpr int decode_repeats = 12;

/// Requests of equal length on consecutive pages: what the synthetic steps run on.
struct Bench {
  std::vector<Content> contents;
  std::vector<std::vector<std::int32_t>> pages, index_pages;  // of each request
  std::int64_t length = 0;                                    // tokens that fit

  explicit Bench(const EngineConfig& config) {
    const std::int64_t room = std::min(config.pages, config.index_pages);
    const std::int64_t wanted = std::min(most_context + config.max_tokens, config.max_seq_len);
    const std::int64_t each = std::clamp<std::int64_t>(wanted / page_size, 1, room);
    const std::int64_t count =
        std::clamp<std::int64_t>(room / each, 1, std::min(most_requests, config.max_batch));
    length = std::min(each * page_size, config.max_seq_len);
    for (std::int64_t r = 0; r < count; ++r) {
      const TraceRequest request{
          .arrival_ms = 0, .input_length = length, .output_length = 0, .hash_ids = {}};
      contents.emplace_back(request, static_cast<std::uint64_t>(r), config.seed);
      pages.emplace_back(static_cast<std::size_t>(each));
      std::iota(pages.back().begin(), pages.back().end(), static_cast<std::int32_t>(r * each));
      index_pages.push_back(pages.back());
    }
  }

  StepItem item(std::size_t request, std::int64_t first, std::int64_t tokens, bool decode) const {
    return {.request = static_cast<std::int64_t>(request),
            .first_position = first,
            .query_len = tokens,
            .decode = decode,
            .accepted = tokens,
            .pages = pages[request],
            .index_pages = index_pages[request]};
  }
};

/// Sums over the measured steps of one kind.
struct Measured {
  PhaseTimes times;
  Work work;
  double tokens = 0, steps = 0, seconds = 0;

  void add(const LayerShape& shape, const StepPlan& plan, const PhaseTimes& t) {
    for (std::size_t i = 0; i < t.seconds.size(); ++i) times.seconds[i] += t.seconds[i];
    for (const StepItem& item : plan.items) {
      const Work w = item_work(shape, item);
      work.index += w.index;
      work.attend += w.attend;
    }
    tokens += static_cast<double>(plan.tokens());
    steps += 1;
    seconds += t.total(true);
  }
  double other() const {
    return times.total(true) - times[Phase::index_blocks] - times[Phase::attend] -
           times[Phase::verify];
  }
};

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/// Runs `plan` once unmeasured and then `repeats` times.
Measured measure(Engine& engine, Verifier& verifier, const Bench& bench, const StepPlan& plan,
                 int repeats) {
  using Clock = std::chrono::steady_clock;
  Measured measured;
  engine.run(plan, bench.contents);
  for (int i = 0; i < repeats; ++i) {
    PhaseTimes times = engine.run(plan, bench.contents);
    const Clock::time_point start = Clock::now();
    verifier.check(plan, engine.tensors());
    times[Phase::verify] = std::chrono::duration<double>(Clock::now() - start).count();
    measured.add(engine.config().shape, plan, times);
  }
  return measured;
}

}  // namespace

double CostModel::seconds(const LayerShape& shape, const StepPlan& plan) const {
  double sum = step + token * static_cast<double>(plan.tokens());
  for (const StepItem& item : plan.items) {
    const Work work = item_work(shape, item);
    sum += item.decode ? decode_index * work.index + decode_attend * work.attend
                       : prefill_index * work.index + prefill_attend * work.attend;
  }
  return sum * (1 + verify_share);
}

CostModel calibrate(Engine& engine, const VerifierConfig& verifier_config) {
  const EngineConfig& config = engine.config();
  const Bench bench(config);
  for (std::size_t r = 0; r < bench.contents.size(); ++r) {
    for (std::int64_t first = 0; first < bench.length; first += config.max_tokens) {
      StepPlan fill;
      fill.prefill_tokens = std::min(config.max_tokens, bench.length - first);
      fill.items.push_back(bench.item(r, first, fill.prefill_tokens, false));
      engine.prefill_caches(fill, bench.contents);
    }
  }
  StepPlan prefill;
  prefill.prefill_tokens = std::min(config.max_tokens, bench.length);
  prefill.items.push_back(
      bench.item(0, bench.length - prefill.prefill_tokens, prefill.prefill_tokens, false));
  StepPlan decode;
  const std::int64_t m = std::min(config.decode_query_len, bench.length);
  for (std::size_t r = 0; r < bench.contents.size(); ++r) {
    decode.items.push_back(bench.item(r, bench.length - m, m, true));
    decode.decode_tokens += m;
  }
  Verifier verifier(verifier_config);
  const Measured p = measure(engine, verifier, bench, prefill, prefill_repeats);
  const Measured d = measure(engine, verifier, bench, decode, decode_repeats);
  engine.reset_digest();

  CostModel model;
  model.token = ratio(p.other(), p.tokens);
  model.step = std::max(ratio(d.other() - model.token * d.tokens, d.steps), 0.0);
  model.prefill_index = ratio(p.times[Phase::index_blocks], p.work.index);
  model.prefill_attend = ratio(p.times[Phase::attend], p.work.attend);
  model.decode_index = ratio(d.times[Phase::index_blocks], d.work.index);
  model.decode_attend = ratio(d.times[Phase::attend], d.work.attend);
  const double checking = p.times[Phase::verify] + d.times[Phase::verify];
  model.verify_share = ratio(checking, p.seconds + d.seconds - checking);
  return model;
}

double predict_seconds(const CostModel& model, const LayerShape& shape,
                       std::span<const TraceRequest> trace, std::span<const Content> contents,
                       const SchedulerConfig& config) {
  double sum = 0;
  simulate(trace, contents, config,
           [&](const StepPlan& plan) { sum += model.seconds(shape, plan); });
  return sum;
}

std::int64_t choose_requests(const CostModel& model, const LayerShape& shape,
                             std::span<const TraceRequest> trace, std::span<const Content> contents,
                             const SchedulerConfig& config, double seconds) {
  std::size_t fits = 1, too_many = trace.size() + 1;
  while (too_many - fits > 1) {
    const std::size_t middle = fits + (too_many - fits) / 2;
    const double predicted =
        predict_seconds(model, shape, trace.first(middle), contents.first(middle), config);
    (predicted <= seconds ? fits : too_many) = middle;
  }
  return static_cast<std::int64_t>(fits);
}

}  // namespace msa::replay
