// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "cli/replay/content.h"
#include "cli/replay/trace.h"
#include "msa/page_allocator.h"

/// \file
/// Continuous batching in virtual time.

namespace msa::replay {

/// What decides the schedule. Nothing else does: no clock, no thread count, no measurement.
struct SchedulerConfig {
  std::int64_t max_batch = 32;  ///< requests running at once, ≥ 1
  std::int64_t chunk = 2048;    ///< tokens of a step; prefill gets what decode leaves of them
  std::int64_t draft = 0;       ///< drafts of a decode step, 0 to 15: m = 1 + draft
  std::int64_t pages = 0;       ///< pages of the main cache, the null page included
  std::uint64_t seed = 1;

  double step_ms = 10;        ///< virtual time of a step …
  double token_ms = 0.05;     ///< … and of each of its tokens
  double draft_accept = 0.7;  ///< chance that a draft is right, once all before it are

  constexpr std::int64_t decode_query_len() const { return 1 + draft; }
  /// Most query tokens of one step.
  constexpr std::int64_t max_tokens() const {
    return std::max(chunk, max_batch * decode_query_len());
  }
  /// Pages of the index cache: two more than the main cache's, never handed out, so that the two
  /// caches' ids of the same tokens differ.
  constexpr std::int64_t index_pages() const { return pages + 2; }
};

/// One request's part of a step.
struct StepItem {
  std::int64_t request = 0;         ///< index in the trace
  std::int64_t first_position = 0;  ///< of its first query token
  std::int64_t query_len = 0;
  bool decode = false;
  std::int64_t accepted = 0;                  ///< decode: leading query tokens that are kept, ≥ 1
  std::span<const std::int32_t> pages;        // [≥ ceil(seq_len / 128)], main cache
  std::span<const std::int32_t> index_pages;  // likewise, index cache

  std::int64_t seq_len() const { return first_position + query_len; }
};

/// One step, decode items first.
struct StepPlan {
  std::vector<StepItem> items;
  std::int64_t decode_tokens = 0;
  std::int64_t prefill_tokens = 0;
  double clock_ms = 0;            ///< virtual time at which the step starts
  std::int64_t running = 0;       ///< requests that hold pages
  std::int64_t waiting = 0;       ///< requests that arrived and hold none
  std::int64_t pages_in_use = 0;  ///< of the main cache
  std::int64_t pages_cached = 0;  ///< kept for later prefixes

  std::int64_t tokens() const { return decode_tokens + prefill_tokens; }
};

struct SchedulerStats {
  std::int64_t steps = 0;
  std::int64_t finished = 0;           ///< requests served to their last token
  std::int64_t prompt_tokens = 0;      ///< of the requests admitted, each once
  std::int64_t cached_tokens = 0;      ///< those found in the cache at their first admission
  std::int64_t prefill_tokens = 0;     ///< computed, recomputation included
  std::int64_t recomputed_tokens = 0;  ///< computed once more after a preemption
  std::int64_t decode_tokens = 0;      ///< decode rows computed, rejected drafts included
  std::int64_t generated_tokens = 0;
  std::int64_t drafts_accepted = 0;
  std::int64_t drafts_proposed = 0;
  std::int64_t preemptions = 0;
  std::int64_t evictions = 0;   ///< cached prefix groups given up for new pages
  std::int64_t peak_pages = 0;  ///< most pages in use at once
  std::int64_t peak_running = 0;
};

/// Serves a trace step by step. Each step holds one decode item of m tokens for every request whose
/// prompt is done, in order of admission, then prompt chunks with the rest of the token budget,
/// then newly admitted requests, first come, first served. A prompt gets its pages when it is
/// admitted, behind the longest prefix that other requests left in the cache; a decoding request
/// takes one page at a time. Where none is left, the request admitted last is preempted: its pages
/// are freed and it starts over at the head of the queue, generated tokens kept as part of the
/// prompt.
///
/// Time is virtual: step_ms + token_ms · tokens a step. Freed pages are not cleared.
class Scheduler {
 public:
  /// `trace` and `contents` must outlive the scheduler.
  /// \throws Error naming the request that the caches are too small for, or a wrong field.
  Scheduler(std::span<const TraceRequest> trace, std::span<const Content> contents,
            const SchedulerConfig& config);

  /// Plans the next step; null when every request is served. The plan, and the page lists it points
  /// at, hold until `complete`, which must be called before the next `next`.
  const StepPlan* next();
  /// The planned step was computed.
  void complete();

  SchedulerStats stats() const;
  const SchedulerConfig& config() const { return config_; }

 private:
  struct Running {
    std::int64_t request = 0;
    std::int64_t computed = 0;  // tokens in the cache
    std::int64_t target = 0;    // tokens of the prompt, recomputed output included
    PageAllocator::Sequence pages;
    PageAllocator::Sequence index_pages;

    bool decodes() const { return computed >= target; }
  };

  void admit_arrivals();
  void plan_running(std::int64_t& budget);
  void plan_waiting(std::int64_t& budget);
  bool admit(std::int64_t request);
  void plan_prefill(const Running& r, std::int64_t& budget);
  void plan_decode(const Running& r);
  bool grow(Running& r, std::int64_t tokens);
  void preempt_last();
  std::int64_t known_tokens(std::int64_t request) const;
  void advance(Running& r, const StepItem& item);

  std::span<const TraceRequest> trace_;
  std::span<const Content> contents_;
  SchedulerConfig config_;
  PageAllocator main_;
  PageAllocator index_;
  PageAllocator::Sequence spacer_;       // index pages that shift all other ids
  std::vector<std::int64_t> generated_;  // by request
  std::vector<std::int64_t> lost_;       // by request: tokens computed before its preemption
  std::vector<std::uint8_t> admitted_;   // by request: was admitted before
  std::deque<std::int64_t> waiting_;
  std::vector<Running> running_;  // in order of admission
  std::size_t arrived_ = 0;
  double clock_ms_ = 0;
  bool preempted_ = false;  // in the step being planned
  StepPlan plan_;
  SchedulerStats stats_;
};

/// Runs the whole schedule without computing anything; `visit(plan)` sees each step.
template <class Visit>
SchedulerStats simulate(std::span<const TraceRequest> trace, std::span<const Content> contents,
                        const SchedulerConfig& config, Visit&& visit) {
  Scheduler scheduler(trace, contents, config);
  while (const StepPlan* plan = scheduler.next()) {
    visit(*plan);
    scheduler.complete();
  }
  return scheduler.stats();
}

}  // namespace msa::replay
