// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "msa/error.h"

namespace msa::replay {
namespace {

std::int64_t pages_for(std::int64_t tokens) { return (tokens + page_size - 1) / page_size; }

/// Tokens that a request may ever have in the caches, drafts that fail included.
std::int64_t longest(const TraceRequest& request, const SchedulerConfig& config) {
  return request.input_length + request.output_length + config.decode_query_len();
}

/// Refuses what cannot be served, before an allocator sees it.
const SchedulerConfig& checked(std::span<const TraceRequest> trace, const SchedulerConfig& config) {
  std::vector<std::string> faults;
  const auto require = [&faults](bool ok, const char* name, std::int64_t value,
                                 const char* allowed) {
    if (!ok) faults.push_back(fmt::format("replay: '{}' is {}; allowed: {}", name, value, allowed));
  };
  require(config.max_batch >= 1 && config.max_batch <= 65536, "max-batch", config.max_batch,
          "1 to 65536");
  require(config.chunk >= 1 && config.chunk <= 1 << 20, "chunk", config.chunk, "1 to 1048576");
  require(config.draft >= 0 && config.draft < max_decode_query_len, "draft", config.draft,
          "0 to 15");
  require(config.pages >= 2 && config.pages <= (1 << 30), "pages", config.pages, "2 to 1073741824");
  for (std::size_t i = 0; faults.empty() && i < trace.size(); ++i) {
    const std::int64_t wanted = pages_for(longest(trace[i], config)) + 1;
    if (wanted <= config.pages) continue;
    faults.push_back(fmt::format(
        "replay: 'pages' is {}; allowed: at least {}, for request {} with {} prompt and {} output "
        "tokens",
        config.pages, wanted, i, trace[i].input_length, trace[i].output_length));
  }
  if (!faults.empty()) throw Error(ErrorCode::invalid_argument, faults);
  return config;
}

/// How many of a decode step's drafts turn out right: a function of the seed, the request and the
/// position, so that it does not depend on the schedule.
std::int64_t accepted_drafts(const SchedulerConfig& config, const Content& content,
                             std::int64_t position) {
  constexpr double to_unit = 1.0 / 18446744073709551616.0;  // 2^-64
  std::int64_t accepted = 0;
  std::uint64_t bits = mix(content.own_key(), 3, static_cast<std::uint64_t>(position));
  while (accepted < config.draft && static_cast<double>(bits) * to_unit < config.draft_accept) {
    bits = mix(bits);
    ++accepted;
  }
  return accepted;
}

}  // namespace

Scheduler::Scheduler(std::span<const TraceRequest> trace, std::span<const Content> contents,
                     const SchedulerConfig& config)
    : trace_(trace),
      contents_(contents),
      config_(checked(trace, config)),
      main_({.pages = config.pages}),
      index_({.pages = config.index_pages()}),
      generated_(trace.size()),
      lost_(trace.size()),
      admitted_(trace.size()) {
  const std::int64_t spacer = (config.index_pages() - config.pages) * page_size;
  spacer_ =
      std::move(*index_.begin({.hashes = {}, .prompt_tokens = spacer, .reserve_tokens = spacer}));
}

std::int64_t Scheduler::known_tokens(std::int64_t request) const {
  const auto r = static_cast<std::size_t>(request);
  return trace_[r].input_length + generated_[r];
}

void Scheduler::admit_arrivals() {
  if (running_.empty() && waiting_.empty() && arrived_ < trace_.size()) {
    clock_ms_ = std::max(clock_ms_, trace_[arrived_].arrival_ms);  // idle until then
  }
  while (arrived_ < trace_.size() && trace_[arrived_].arrival_ms <= clock_ms_) {
    waiting_.push_back(static_cast<std::int64_t>(arrived_++));
  }
}

const StepPlan* Scheduler::next() {
  admit_arrivals();
  plan_ = {};
  plan_.clock_ms = clock_ms_;
  preempted_ = false;
  std::int64_t budget = config_.chunk;
  plan_running(budget);
  plan_waiting(budget);
  if (plan_.items.empty()) return nullptr;
  const PageAllocator::Stats pages = main_.stats();
  plan_.running = static_cast<std::int64_t>(running_.size());
  plan_.waiting = static_cast<std::int64_t>(waiting_.size());
  plan_.pages_in_use = pages.pages_in_use;
  plan_.pages_cached = pages.pages_cached;
  stats_.peak_running = std::max(stats_.peak_running, plan_.running);
  return &plan_;
}

void Scheduler::plan_running(std::int64_t& budget) {
  // Prompts are filled in order of admission, so all decoding requests stand before all others.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (!running_[i].decodes()) {
      plan_prefill(running_[i], budget);
      continue;
    }
    // The victim is the last of all, which has no item yet: at worst it is this request itself.
    const std::int64_t tokens = running_[i].computed + config_.decode_query_len();
    bool grown = grow(running_[i], tokens);
    while (!grown && i < running_.size()) {
      preempt_last();
      grown = i < running_.size() && grow(running_[i], tokens);
    }
    if (!grown) break;
    plan_decode(running_[i]);
    budget -= config_.decode_query_len();
  }
}

void Scheduler::plan_waiting(std::int64_t& budget) {
  // A step that had to preempt admits nobody: the pages would be taken away again at once.
  while (!waiting_.empty() && budget > 0 && !preempted_ &&
         std::cmp_less(running_.size(), config_.max_batch)) {
    if (!admit(waiting_.front())) break;
    waiting_.pop_front();
    plan_prefill(running_.back(), budget);
  }
}

bool Scheduler::admit(std::int64_t request) {
  const auto r = static_cast<std::size_t>(request);
  const std::int64_t target = known_tokens(request);
  // Room for the first page of output, so that a prompt is not computed only to be preempted.
  const std::int64_t reserve = std::min(target + page_size, longest(trace_[r], config_));
  const PageAllocator::Request wanted{
      .hashes = contents_[r].shareable(), .prompt_tokens = target, .reserve_tokens = reserve};
  std::optional<PageAllocator::Sequence> pages = main_.begin(wanted);
  if (!pages) return false;
  std::optional<PageAllocator::Sequence> index_pages = index_.begin(wanted);
  if (!index_pages) return false;  // `pages` frees itself
  // A prefix counts only where both caches hold it.
  const std::int64_t cached = std::min(pages->cached_tokens(), index_pages->cached_tokens());
  if (!admitted_[r]) {
    admitted_[r] = 1;
    stats_.prompt_tokens += target;
    stats_.cached_tokens += cached;
  } else {
    stats_.recomputed_tokens += std::max<std::int64_t>(lost_[r] - cached, 0);
  }
  running_.push_back({request, cached, target, std::move(*pages), std::move(*index_pages)});
  return true;
}

void Scheduler::plan_prefill(const Running& r, std::int64_t& budget) {
  if (budget <= 0) return;
  const std::int64_t length = std::min(budget, r.target - r.computed);
  plan_.items.push_back({.request = r.request,
                         .first_position = r.computed,
                         .query_len = length,
                         .pages = r.pages.pages(),
                         .index_pages = r.index_pages.pages()});
  plan_.prefill_tokens += length;
  budget -= length;
}

void Scheduler::plan_decode(const Running& r) {
  const auto i = static_cast<std::size_t>(r.request);
  const std::int64_t accepted = 1 + accepted_drafts(config_, contents_[i], r.computed);
  plan_.items.push_back({.request = r.request,
                         .first_position = r.computed,
                         .query_len = config_.decode_query_len(),
                         .decode = true,
                         .accepted = std::min(accepted, trace_[i].output_length - generated_[i]),
                         .pages = r.pages.pages(),
                         .index_pages = r.index_pages.pages()});
  plan_.decode_tokens += config_.decode_query_len();
}

bool Scheduler::grow(Running& r, std::int64_t tokens) {
  return main_.grow(r.pages, tokens) && index_.grow(r.index_pages, tokens);
}

void Scheduler::preempt_last() {
  const Running& last = running_.back();
  lost_[static_cast<std::size_t>(last.request)] = last.computed;
  waiting_.push_front(last.request);
  running_.pop_back();
  preempted_ = true;
  ++stats_.preemptions;
}

void Scheduler::advance(Running& r, const StepItem& item) {
  const auto i = static_cast<std::size_t>(item.request);
  if (item.decode) {
    r.computed += item.accepted;
    generated_[i] += item.accepted;
    stats_.generated_tokens += item.accepted;
    stats_.drafts_accepted += item.accepted - 1;
    stats_.drafts_proposed += item.query_len - 1;
    return;
  }
  r.computed += item.query_len;
  main_.publish(r.pages, r.computed);
  index_.publish(r.index_pages, r.computed);
  if (r.decodes() && trace_[i].output_length > 0) {  // the prompt's last row names the next token
    ++generated_[i];
    ++stats_.generated_tokens;
  }
}

void Scheduler::complete() {
  std::size_t i = 0;
  for (const StepItem& item : plan_.items) {  // in the order of running_
    while (running_[i].request != item.request) ++i;
    advance(running_[i], item);
  }
  const auto done = [this](const Running& r) {
    const auto request = static_cast<std::size_t>(r.request);
    return r.decodes() && generated_[request] >= trace_[request].output_length;
  };
  stats_.finished += static_cast<std::int64_t>(std::erase_if(running_, done));
  ++stats_.steps;
  stats_.prefill_tokens += plan_.prefill_tokens;
  stats_.decode_tokens += plan_.decode_tokens;
  clock_ms_ += config_.step_ms + config_.token_ms * static_cast<double>(plan_.tokens());
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = stats_;
  const PageAllocator::Stats pages = main_.stats();
  stats.evictions = pages.evictions;
  stats.peak_pages = pages.peak_in_use;
  return stats;
}

}  // namespace msa::replay
