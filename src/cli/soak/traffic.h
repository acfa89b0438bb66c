// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cli/io/generate.h"
#include "cli/replay/scheduler.h"

/// \file
/// Random requests that arrive, grow, fork, finish and are evicted.

namespace msa::soak {

using cli::SplitMix64;
using replay::StepItem;
using replay::StepPlan;

/// Which pages of one cache have owners. Pages come in random order: an allocator's habit of
/// handing out neighbours must hide nothing.
class PagePool {
 public:
  explicit PagePool(std::int64_t pages);

  bool empty() const { return free_.empty(); }
  std::int64_t size() const { return static_cast<std::int64_t>(owners_.size()); }
  bool is_free(std::int64_t page) const { return owners_[static_cast<std::size_t>(page)] == 0; }
  /// Any free page, owned once.
  std::int32_t take(SplitMix64& random);
  void share(std::int32_t page) { ++owners_[static_cast<std::size_t>(page)]; }
  /// One owner less; a page without owners is free, and in `freed`.
  void release(std::int32_t page);

  /// Pages that lost their last owner since this was cleared: what has to be poisoned.
  std::vector<std::int32_t> freed;

 private:
  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> owners_;  // by page
};

struct TrafficConfig {
  std::int64_t pages = 0;        ///< of the main cache, at least what max_keys need
  std::int64_t index_pages = 0;  ///< likewise
  std::int64_t max_batch = 1;    ///< requests running at once
  std::int64_t chunk = 1;        ///< most prompt tokens of a step
  std::int64_t m = 1;            ///< query tokens of a decode request
  std::int64_t max_keys = 1;     ///< of a request, more than m
};

struct TrafficStats {
  std::int64_t arrived = 0;
  std::int64_t forked = 0;  ///< of them, with pages of another request as their prefix
  std::int64_t finished = 0;
  std::int64_t evicted = 0;

  TrafficStats& operator+=(const TrafficStats& other);
};

/// Plans step after step as a function of the seed alone. Each holds m tokens of every request
/// whose prompt is done, then chunks of prompts, now and then of 0 tokens. A request that finds no
/// page has another one evicted, which starts over later; some are evicted for no reason.
class Traffic {
 public:
  Traffic(const TrafficConfig& config, std::uint64_t seed);

  /// The next step, of at least one token. It holds until `complete`.
  const StepPlan& next();
  /// The planned step was computed: requests grow, some finish.
  void complete();

  PagePool& main() { return main_; }
  PagePool& index() { return index_; }
  const TrafficStats& stats() const { return stats_; }
  /// Most tokens of a step.
  std::int64_t max_tokens() const { return config_.max_batch * config_.m + config_.chunk; }

  /// Everybody moves to caches of other sizes, between steps. Pairs (old page, new page) of each
  /// cache; the new pools hold nothing else.
  struct Moves {
    std::vector<std::int64_t> main, index;
  };
  Moves move(std::int64_t pages, std::int64_t index_pages);

 private:
  struct Request {
    std::int64_t id = 0;
    std::int64_t keys = 0;    // in the caches
    std::int64_t prompt = 0;  // decodes from here on
    std::int64_t total = 0;   // finished with so many keys
    std::int64_t query = 0;   // tokens of the step being planned
    std::vector<std::int32_t> pages, index_pages;

    bool decodes() const { return keys >= prompt; }
  };

  void admit();
  void begin(std::int64_t prompt, std::int64_t total);
  bool grow(Request& request);
  void evict(std::size_t place);
  void release(Request& request);

  TrafficConfig config_;
  SplitMix64 random_;
  PagePool main_, index_;
  std::vector<Request> running_;
  std::deque<Request> evicted_;  // without pages
  std::int64_t ids_ = 0;
  StepPlan plan_;
  TrafficStats stats_;
};

}  // namespace msa::soak
