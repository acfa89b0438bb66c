// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace msa::replay {
namespace {

using cli::Console;
using cli::Json;

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

double percent(std::int64_t part, std::int64_t whole) {
  return percent(static_cast<double>(part), static_cast<double>(whole));
}

std::size_t kind_of(const StepRecord& step) {
  if (step.decode_tokens == 0) return 0;
  return step.prefill_tokens > 0 ? 1 : 2;
}

std::string shard_text(const LayerShape& shape) {
  return fmt::format("{}/{}", shape.q_heads, shape.kv_heads);
}

/// 12345678 → "12,345,678".
std::string grouped(std::int64_t number) {
  const std::string digits = std::to_string(number);  // never negative here
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

void print_steps(const Console& console, const ReplayReport& report) {
  console.print("\n{:<10}{:>9}{:>14}{:>13}{:>11}{:>12}{:>12}{:>12}{:>12}\n", "steps", "count",
                "prompt tok", "decode tok", "time", "tokens/s", "p50", "p90", "p99");
  for (const KindSummary& kind : summarize(report.steps)) {
    if (kind.steps == 0) continue;
    console.print("{:<10}{:>9}{:>14}{:>13}{:>11}{:>12}{:>12}{:>12}{:>12}\n", kind.name,
                  grouped(kind.steps), grouped(kind.prefill_tokens), grouped(kind.decode_tokens),
                  cli::format_seconds(kind.seconds),
                  grouped(std::llround(kind.tokens_per_second())), cli::format_seconds(kind.p50),
                  cli::format_seconds(kind.p90), cli::format_seconds(kind.p99));
  }
}

void print_phases(const Console& console, const ReplayReport& report) {
  const PhaseTimes times = total_times(report.steps);
  console.print("\n{:<14}{:>11}{:>9}\n", "time", "", "share");
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    const double seconds = times.seconds[i];
    const bool harness = !serves(static_cast<Phase>(i));
    console.print("{:<14}{:>11}{:>8.1f}%{}\n", phase_names[i], cli::format_seconds(seconds),
                  percent(seconds, times.total(true)), harness ? "  (harness)" : "");
  }
  const double harness = times.total(true) - times.total(false);
  console.print("{:<14}{:>11}{:>8.1f}%\n", "harness", cli::format_seconds(harness),
                percent(harness, times.total(true)));
}

void print_cache(const Console& console, const ReplayReport& report) {
  const SchedulerStats& s = report.scheduler;
  const ReplayOptions& o = report.options;
  console.print(
      "\ncache         {:.1f} % of {} prompt tokens found ({} computed, {} of them again)\n",
      percent(s.cached_tokens, s.prompt_tokens), grouped(s.prompt_tokens),
      grouped(s.prefill_tokens), grouped(s.recomputed_tokens));
  console.print(
      "pages         peak {} of {} in use ({:.1f} %), {} prefix groups evicted, {} preemptions\n",
      grouped(s.peak_pages), grouped(o.pages), percent(s.peak_pages, o.pages), grouped(s.evictions),
      s.preemptions);
  console.print("requests      {} served, at most {} at once; {} tokens generated\n", s.finished,
                s.peak_running, grouped(s.generated_tokens));
  if (o.draft > 0) {
    console.print("drafts        {:.1f} % of {} accepted\n",
                  percent(s.drafts_accepted, s.drafts_proposed), grouped(s.drafts_proposed));
  }
  if (report.locality.pairs > 0) {
    console.print("selections    neighbour Jaccard {:.3f} over {} pairs of rows\n",
                  report.locality.jaccard(), grouped(report.locality.pairs));
  }
}

void print_checks(const Console& console, const ReplayReport& report) {
  const VerifierReport& v = report.checks;
  const std::string wrong = fmt::format("{} wrong", v.wrong);
  console.print(
      "checked       {} rows, {}; worst error {:.2f} of the tolerance "
      "(attend {:.2e} absolute)\n",
      grouped(v.rows), console.styled(v.wrong == 0 ? cli::Style::good : cli::Style::bad, wrong),
      v.worst_share(), v.worst_abs_error);
  console.print(
      "              of the tolerance: write {:.2f}, selection {:.2f}, attend max {:.2f}, "
      "mean {:.2f}, L2 {:.2f}\n",
      v.write.worst, v.selection.worst, v.attend_max.worst, v.attend_mean.worst, v.attend_l2.worst);
  for (const std::string& complaint : v.complaints) {
    console.print("              {}\n", console.styled(cli::Style::bad, complaint));
  }
}

void print_decode(const Console& console, const ReplayReport& report) {
  const auto rates = decode_rates(report.steps);
  if (rates[0].seconds == 0) return;
  console.print("\n{:<14}{:>11}{:>12}{}\n", "decode steps", "", "must read",
                report.memory_rate > 0 ? "   of memory's rate" : "");
  for (const DecodeRate& rate : rates) {
    console.print("{:<14}{:>11}{:>10}/s", rate.name, cli::format_seconds(rate.seconds),
                  cli::format_bytes(rate.bytes_per_second()));
    if (report.memory_rate > 0) {
      console.print("{:>17.1f}%", percent(rate.bytes_per_second(), report.memory_rate));
    }
    console.print("\n");
  }
  if (report.captured.empty()) return;
  console.print("graphs        of {} requests\n", fmt::join(report.captured, ", "));
}

Json decode_json(const ReplayReport& report) {
  Json json = {{"captured", report.captured}};
  json["memory_rate"] = report.memory_rate > 0 ? Json(report.memory_rate) : Json(nullptr);
  for (const DecodeRate& rate : decode_rates(report.steps)) {
    json[rate.name] = {{"seconds", rate.seconds}, {"bytes", rate.bytes}};
  }
  return json;
}

Json options_json(const ReplayOptions& o) {
  return {{"requests", o.requests},
          {"seed", o.seed},
          {"shard", shard_text(o.shape)},
          {"index_heads", o.shape.index_heads},
          {"layers", o.layers},
          {"kv", name(o.kv_type)},
          {"index_kv", name(o.index_type)},
          {"layout", name(o.layout)},
          {"pages", o.pages},
          {"chunk", o.chunk},
          {"max_batch", o.max_batch},
          {"draft", o.draft},
          {"eager", o.eager},
          {"verify_rows", o.verify_rows}};
}

Json steps_json(const std::vector<StepRecord>& steps) {
  Json list = Json::array();
  for (const KindSummary& kind : summarize(steps)) {
    list.push_back(
        {{"kind", kind.name},
         {"steps", kind.steps},
         {"prefill_tokens", kind.prefill_tokens},
         {"decode_tokens", kind.decode_tokens},
         {"seconds", kind.seconds},
         {"tokens_per_second", kind.tokens_per_second()},
         {"step_ms", {{"p50", kind.p50 * 1e3}, {"p90", kind.p90 * 1e3}, {"p99", kind.p99 * 1e3}}}});
  }
  return list;
}

Json phases_json(const std::vector<StepRecord>& steps) {
  const PhaseTimes times = total_times(steps);
  Json phases = Json::object();
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    phases[phase_names[i]] = {{"seconds", times.seconds[i]},
                              {"share", percent(times.seconds[i], times.total(true)) / 100},
                              {"harness", !serves(static_cast<Phase>(i))}};
  }
  return phases;
}

Json scheduler_json(const ReplayReport& report) {
  const SchedulerStats& s = report.scheduler;
  return {{"steps", s.steps},
          {"requests_served", s.finished},
          {"peak_running", s.peak_running},
          {"prompt_tokens", s.prompt_tokens},
          {"cached_tokens", s.cached_tokens},
          {"hit_rate", percent(s.cached_tokens, s.prompt_tokens) / 100},
          {"prefill_tokens", s.prefill_tokens},
          {"recomputed_tokens", s.recomputed_tokens},
          {"decode_tokens", s.decode_tokens},
          {"generated_tokens", s.generated_tokens},
          {"drafts_proposed", s.drafts_proposed},
          {"drafts_accepted", s.drafts_accepted},
          {"preemptions", s.preemptions},
          {"evicted_groups", s.evictions},
          {"peak_pages", s.peak_pages},
          {"pages", report.options.pages},
          {"cache_bytes", report.cache_bytes}};
}

/// A word of a shell command.
std::string quoted(const std::string& word) {
  constexpr const char* safe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(safe) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

/// JSON has no infinity: null stands for it.
Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json checks_json(const VerifierReport& v) {
  return {{"rows", v.rows},
          {"wrong", v.wrong},
          {"worst_share_of_tolerance", finite(v.worst_share())},
          {"worst_abs_error", finite(v.worst_abs_error)},
          {"share_of_tolerance",
           {{"write", finite(v.write.worst)},
            {"selection", finite(v.selection.worst)},
            {"attend_max", finite(v.attend_max.worst)},
            {"attend_mean", finite(v.attend_mean.worst)},
            {"attend_l2", finite(v.attend_l2.worst)}}},
          {"complaints", v.complaints}};
}

}  // namespace

double percentile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(samples.size()));
  const auto at = static_cast<std::ptrdiff_t>(
      std::clamp(rank - 1, 0.0, static_cast<double>(samples.size() - 1)));
  std::nth_element(samples.begin(), samples.begin() + at, samples.end());
  return samples[static_cast<std::size_t>(at)];
}

std::array<KindSummary, 4> summarize(const std::vector<StepRecord>& steps) {
  std::array<KindSummary, 4> kinds;
  std::array<std::vector<double>, 4> seconds;
  const char* const names[] = {"prefill", "mixed", "decode", "all"};
  for (std::size_t k = 0; k < kinds.size(); ++k) kinds[k].name = names[k];
  for (const StepRecord& step : steps) {
    for (const std::size_t k : {kind_of(step), kinds.size() - 1}) {
      ++kinds[k].steps;
      kinds[k].prefill_tokens += step.prefill_tokens;
      kinds[k].decode_tokens += step.decode_tokens;
      kinds[k].seconds += step.seconds();
      seconds[k].push_back(step.seconds());
    }
  }
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    kinds[k].p50 = percentile(seconds[k], 0.5);
    kinds[k].p90 = percentile(seconds[k], 0.9);
    kinds[k].p99 = percentile(seconds[k], 0.99);
  }
  return kinds;
}

std::array<DecodeRate, 2> decode_rates(const std::vector<StepRecord>& steps) {
  std::array<DecodeRate, 2> rates = {DecodeRate{"index_blocks"}, DecodeRate{"attend"}};
  for (const StepRecord& step : steps) {
    if (step.prefill_tokens > 0) continue;
    rates[0].seconds += step.times[Phase::index_blocks];
    rates[0].bytes += step.bytes.index;
    rates[1].seconds += step.times[Phase::attend];
    rates[1].bytes += step.bytes.attend;
  }
  return rates;
}

PhaseTimes total_times(const std::vector<StepRecord>& steps) {
  PhaseTimes total;
  for (const StepRecord& step : steps) {
    for (std::size_t i = 0; i < total.seconds.size(); ++i) {
      total.seconds[i] += step.times.seconds[i];
    }
  }
  return total;
}

std::string reproducing_command(const std::string& trace, const ReplayOptions& o,
                                const std::string& device) {
  const ReplayOptions usual;
  std::string text =
      fmt::format("msa replay {} --requests {} --seed {}", quoted(trace), o.requests, o.seed);
  const auto add = [&text](bool differs, const char* flag, const auto& value) {
    if (differs) text += fmt::format(" {} {}", flag, value);
  };
  add(o.shape.q_heads != usual.shape.q_heads || o.shape.kv_heads != usual.shape.kv_heads, "--shard",
      shard_text(o.shape));
  add(o.layers != usual.layers, "--layers", o.layers);
  add(o.kv_type != usual.kv_type, "--kv", name(o.kv_type));
  add(o.index_type != usual.index_type, "--index-kv", name(o.index_type));
  add(o.layout != usual.layout, "--layout", name(o.layout));
  add(o.max_batch != usual.max_batch, "--max-batch", o.max_batch);
  add(o.chunk != usual.chunk, "--chunk", o.chunk);
  add(o.draft != usual.draft, "--draft", o.draft);
  add(o.verify_rows != usual.verify_rows, "--verify-rows", o.verify_rows);
  if (o.eager) text += " --eager";
  add(true, "--pages", o.pages);
  add(true, "--device", device);
  return text;
}

int cli_exit_code(const VerifierReport& checks) {
  return checks.wrong == 0 ? cli::exit_ok : cli::exit_check_failed;
}

std::string digest_text(std::uint64_t digest) { return fmt::format("{:#018x}", digest); }

void print_report(const Console& console, const std::string& trace, const ReplayReport& report) {
  print_steps(console, report);
  print_phases(console, report);
  print_decode(console, report);
  print_cache(console, report);
  print_checks(console, report);
  console.print("digest        {}\n",
                console.styled(cli::Style::strong, digest_text(report.digest)));
  console.print("serving took {}; to repeat it:\n  {}\n",
                cli::format_seconds(report.serving_seconds),
                reproducing_command(trace, report.options, report.device));
}

Json report_json(const std::string& trace, const ReplayReport& report, Json environment) {
  return {{"command", "replay"},
          {"trace", trace},
          {"trace_requests", report.trace_requests},
          {"options", options_json(report.options)},
          {"device", report.device},
          {"backend", report.backend},
          {"reproduce", reproducing_command(trace, report.options, report.device)},
          {"calibration_seconds", report.calibration_seconds},
          {"predicted_seconds", report.predicted_seconds},
          {"serving_seconds", report.serving_seconds},
          {"steps", steps_json(report.steps)},
          {"phases", phases_json(report.steps)},
          {"decode", decode_json(report)},
          {"scheduler", scheduler_json(report)},
          {"selection",
           {{"neighbour_jaccard", report.locality.jaccard()}, {"pairs", report.locality.pairs}}},
          {"checks", checks_json(report.checks)},
          {"digest", digest_text(report.digest)},
          {"environment", std::move(environment)}};
}

}  // namespace msa::replay
