// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/scheduler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "msa/error.h"
#include "msa/types.h"

namespace msa::replay {
namespace {

/// A request whose hashes are `first`, first + 1, …
TraceRequest request(double arrival_ms, std::int64_t input, std::int64_t output,
                     std::uint64_t first = 0, bool hashed = true) {
  TraceRequest r{arrival_ms, input, output, {}};
  for (std::int64_t i = 0; hashed && i < (input + group_tokens - 1) / group_tokens; ++i) {
    r.hash_ids.push_back(first + static_cast<std::uint64_t>(i));
  }
  return r;
}

SchedulerConfig config_of(std::int64_t pages, std::int64_t chunk = 512, std::int64_t batch = 4,
                          std::int64_t draft = 0) {
  SchedulerConfig config;
  config.pages = pages;
  config.chunk = chunk;
  config.max_batch = batch;
  config.draft = draft;
  return config;
}

/// A cache as the schedule leaves it: which text each page holds, and how many tokens of it.
class Memory {
 public:
  explicit Memory(std::int64_t pages) : pages_(static_cast<std::size_t>(pages)) {}

  /// The item's keys before its first position must be there already: its own or a sharer's.
  void read(const Content& content, std::span<const std::int32_t> table, const StepItem& item) {
    for (std::int64_t p = 0; p * page_size < item.first_position; ++p) {
      const Page& page = at(table, p);
      RC_ASSERT(page.text == text_of(content, p));
      RC_ASSERT(page.logical == p);
      RC_ASSERT(page.tokens >=
                std::min<std::int64_t>(item.first_position - p * page_size, page_size));
    }
  }
  /// Tokens [first_position, first_position + kept) are written; what follows is garbage.
  void write(const Content& content, std::span<const std::int32_t> table, const StepItem& item,
             std::int64_t kept, std::set<std::int32_t>& written) {
    for (std::int64_t p = item.first_position / page_size; p * page_size < item.seq_len(); ++p) {
      RC_ASSERT(written.insert(table[static_cast<std::size_t>(p)]).second);  // by this step alone
      const std::int64_t end = item.first_position + kept - p * page_size;
      at(table, p) = {text_of(content, p), p, std::clamp<std::int64_t>(end, 0, page_size)};
    }
  }

 private:
  struct Page {
    std::uint64_t text = 0;
    std::int64_t logical = -1, tokens = 0;
  };
  Page& at(std::span<const std::int32_t> table, std::int64_t logical) {
    RC_ASSERT(logical < static_cast<std::int64_t>(table.size()));
    const std::int32_t page = table[static_cast<std::size_t>(logical)];
    RC_ASSERT(page > 0 && page < static_cast<std::int32_t>(pages_.size()));  // 0 is the null page
    return pages_[static_cast<std::size_t>(page)];
  }
  static std::uint64_t text_of(const Content& content, std::int64_t page) {
    const std::int64_t group = page * page_size / group_tokens;
    const auto shareable = static_cast<std::int64_t>(content.shareable().size());
    return group < shareable ? content.group_key(group) : content.own_key();
  }

  std::vector<Page> pages_;
};

/// Watches a schedule: what must hold in every step, whatever the trace.
class Watch {
 public:
  Watch(std::vector<TraceRequest> trace, const SchedulerConfig& config)
      : trace_(std::move(trace)),
        config_(config),
        contents_(contents_of(trace_, config.seed)),
        main_(config.pages),
        index_(config.index_pages()) {}

  SchedulerStats run() {
    const SchedulerStats stats =
        simulate(trace_, contents_, config_, [this](const StepPlan& plan) { see(plan); });
    std::int64_t output = 0;
    for (std::size_t r = 0; r < trace_.size(); ++r) {
      RC_ASSERT(computed_[r] == last_token(r));
      output += trace_[r].output_length;
    }
    RC_ASSERT(stats.finished == static_cast<std::int64_t>(trace_.size()));
    RC_ASSERT(stats.generated_tokens == output);
    RC_ASSERT(stats.prefill_tokens == prefill_tokens_);
    RC_ASSERT(restarts_ <= stats.preemptions);
    RC_ASSERT(stats.peak_pages < config_.pages);
    return stats;
  }
  const std::vector<StepPlan>& plans() const { return plans_; }

 private:
  /// Tokens in the cache when request `r` is done: the last generated one is never computed.
  std::int64_t last_token(std::size_t r) const {
    return trace_[r].input_length + std::max<std::int64_t>(trace_[r].output_length, 1) - 1;
  }

  void see(const StepPlan& plan) {
    RC_ASSERT(!plan.items.empty());
    RC_ASSERT(plan.running <= config_.max_batch);
    RC_ASSERT(std::cmp_less_equal(plan.items.size(), plan.running));
    RC_ASSERT(plan.prefill_tokens == 0 || plan.tokens() <= config_.chunk);
    RC_ASSERT(plan.tokens() <= config_.max_tokens());
    RC_ASSERT(plan.clock_ms >= clock_);
    clock_ = plan.clock_ms;
    prefill_tokens_ += plan.prefill_tokens;
    std::set<std::int64_t> requests;
    std::set<std::int32_t> written, index_written;
    std::int64_t decode_tokens = 0, prefill_tokens = 0;
    for (const StepItem& item : plan.items) {
      RC_ASSERT(requests.insert(item.request).second);
      RC_ASSERT(!item.decode || prefill_tokens == 0);  // decode first
      (item.decode ? decode_tokens : prefill_tokens) += item.query_len;
      see_item(item, plan.clock_ms);
      const Content& content = contents_[static_cast<std::size_t>(item.request)];
      const std::int64_t kept = item.decode ? item.accepted : item.query_len;
      main_.read(content, item.pages, item);
      index_.read(content, item.index_pages, item);
      main_.write(content, item.pages, item, kept, written);
      index_.write(content, item.index_pages, item, kept, index_written);
      for (std::size_t p = 0; p < item.pages.size(); ++p) {
        RC_ASSERT(item.pages[p] != item.index_pages[p]);  // the caches have tables of their own
      }
    }
    RC_ASSERT(decode_tokens == plan.decode_tokens);
    RC_ASSERT(prefill_tokens == plan.prefill_tokens);
    plans_.push_back(plan);
  }

  void see_item(const StepItem& item, double clock) {
    const auto r = static_cast<std::size_t>(item.request);
    RC_ASSERT(trace_[r].arrival_ms <= clock);
    RC_ASSERT(item.query_len >= 1);
    const bool known = computed_.contains(r);
    RC_ASSERT(!known || computed_[r] < last_token(r));  // served once
    if (item.decode) {
      RC_ASSERT(known && item.first_position == computed_[r]);  // no gap, no token twice
      RC_ASSERT(item.first_position >= trace_[r].input_length);
      RC_ASSERT(item.query_len == config_.decode_query_len());
      RC_ASSERT(item.accepted >= 1 && item.accepted <= item.query_len);
      computed_[r] += item.accepted;
    } else {
      // A prompt begins behind a cached prefix of whole groups, or starts over after a preemption.
      if (known && item.first_position != computed_[r]) ++restarts_;
      if (!known || item.first_position != computed_[r]) {
        RC_ASSERT(item.first_position % group_tokens == 0);
        // A request that starts over may find its whole prompt in the cache: what it had generated
        // is left to compute then. One that starts for the first time computes its last token.
        RC_ASSERT(item.first_position < trace_[r].input_length + (known ? 1 : 0));
      }
      computed_[r] = item.seq_len();
    }
    RC_ASSERT(computed_[r] <= last_token(r));
  }

  std::vector<TraceRequest> trace_;
  SchedulerConfig config_;
  std::vector<Content> contents_;
  Memory main_, index_;
  std::map<std::size_t, std::int64_t> computed_;  // by request: leading tokens in the cache
  std::vector<StepPlan> plans_;                   // page lists in them are stale
  std::int64_t prefill_tokens_ = 0;
  std::int64_t restarts_ = 0;
  double clock_ = 0;
};

/// A short trace with shared prefixes, and a cache that it more or less fits into.
std::vector<TraceRequest> arbitrary_trace() {
  std::vector<TraceRequest> trace;
  double arrival = 0;
  const int count = *rc::gen::inRange(1, 12);
  const bool hashed = *rc::gen::arbitrary<bool>();
  for (int i = 0; i < count; ++i) {
    arrival += *rc::gen::inRange(0, 200);
    // Few different prompts of few different lengths, so that prefixes are shared.
    const auto first = static_cast<std::uint64_t>(1000 * *rc::gen::inRange(0, 2));
    const std::int64_t input =
        *rc::gen::element<std::int64_t>(1, 100, 511, 512, 513, 1024, 1500, 2100);
    trace.push_back(request(arrival, input, *rc::gen::inRange(0, 300), first, hashed));
  }
  return trace;
}

RC_GTEST_PROP(ReplayScheduler, ServesEveryRequestOnceOnPagesThatHoldItsText, ()) {
  const std::vector<TraceRequest> trace = arbitrary_trace();
  // 2100 + 299 + 16 tokens are 19 pages, and page 0: from "one request at a time" to "all at once".
  const std::int64_t pages = *rc::gen::inRange(20, 90);
  const std::int64_t chunk = *rc::gen::element<std::int64_t>(1, 7, 128, 700, 5000);
  const std::int64_t batch = *rc::gen::inRange(1, 6);
  const std::int64_t draft = *rc::gen::element<std::int64_t>(0, 1, 3, 15);
  if (chunk < 100) RC_PRE(trace.size() < 4u);  // many steps
  Watch(trace, config_of(pages, chunk, batch, draft)).run();
}

RC_GTEST_PROP(ReplayScheduler, PlansTheSameEachTime, ()) {
  const std::vector<TraceRequest> trace = arbitrary_trace();
  const SchedulerConfig config = config_of(*rc::gen::inRange(20, 60), 300, 4, 2);
  Watch first(trace, config), second(trace, config);
  first.run();
  second.run();
  RC_ASSERT(first.plans().size() == second.plans().size());
  for (std::size_t i = 0; i < first.plans().size(); ++i) {
    const StepPlan &a = first.plans()[i], &b = second.plans()[i];
    RC_ASSERT(a.clock_ms == b.clock_ms);
    RC_ASSERT(a.items.size() == b.items.size());
    for (std::size_t k = 0; k < a.items.size(); ++k) {
      RC_ASSERT(a.items[k].request == b.items[k].request);
      RC_ASSERT(a.items[k].first_position == b.items[k].first_position);
      RC_ASSERT(a.items[k].accepted == b.items[k].accepted);
    }
  }
}

TEST(ReplayScheduler, SharesTheWholeGroupsOfAPromptSeenBefore) {
  const auto stats = Watch({request(0, 1500, 2), request(1000, 1500, 2)}, config_of(100)).run();
  EXPECT_EQ(stats.prompt_tokens, 3000);
  EXPECT_EQ(stats.cached_tokens, 1024);
  EXPECT_EQ(stats.prefill_tokens, 1976);
}

TEST(ReplayScheduler, LeavesTheLastPromptTokenToCompute) {
  const auto stats = Watch({request(0, 1024, 1), request(1000, 1024, 1)}, config_of(100)).run();
  EXPECT_EQ(stats.cached_tokens, 512);
}

TEST(ReplayScheduler, DoesNotShareAHashBehindAnotherPrefix) {
  TraceRequest a = request(0, 1200, 1), b = request(1000, 1200, 1);
  b.hash_ids[0] = 77;  // the second group's id is the same, its keys are not
  EXPECT_EQ(Watch({a, b}, config_of(100)).run().cached_tokens, 0);
}

TEST(ReplayScheduler, SharesNothingWithoutHashes) {
  const auto trace = {request(0, 1500, 2, 0, false), request(1000, 1500, 2, 0, false)};
  EXPECT_EQ(Watch(trace, config_of(100)).run().cached_tokens, 0);
}

TEST(ReplayScheduler, SplitsPromptsIntoChunksBehindDecode) {
  Watch watch({request(0, 100, 50), request(5, 1000, 1)}, config_of(100, 200));
  watch.run();
  const auto& plans = watch.plans();
  EXPECT_EQ(plans[0].prefill_tokens, 100);
  for (std::size_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(plans[i].decode_tokens, 1);
    EXPECT_EQ(plans[i].prefill_tokens, 199);
  }
  EXPECT_EQ(plans[6].prefill_tokens, 5);
}

TEST(ReplayScheduler, SkipsIdleTime) {
  Watch watch({request(0, 10, 1), request(5000, 10, 1)}, config_of(100));
  watch.run();
  ASSERT_EQ(watch.plans().size(), 2u);
  EXPECT_EQ(watch.plans()[1].clock_ms, 5000);
}

TEST(ReplayScheduler, ClockCountsStepsAndTokens) {
  Watch watch({request(0, 600, 2)}, config_of(100, 512));
  watch.run();
  ASSERT_EQ(watch.plans().size(), 3u);
  EXPECT_DOUBLE_EQ(watch.plans()[1].clock_ms, 10 + 0.05 * 512);
  EXPECT_DOUBLE_EQ(watch.plans()[2].clock_ms, 20 + 0.05 * 600);
}

TEST(ReplayScheduler, PreemptsTheLastAdmittedAndStartsItOver) {
  // Two requests that fit with their prompts, not with their outputs.
  const auto stats =
      Watch({request(0, 500, 600, 0), request(0, 500, 600, 50)}, config_of(14)).run();
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.recomputed_tokens, 0);
  EXPECT_EQ(stats.finished, 2);
}

TEST(ReplayScheduler, EvictsPrefixesThatNobodyHolds) {
  std::vector<TraceRequest> trace;
  for (int i = 0; i < 8; ++i) trace.push_back(request(0, 1024, 2, 100u * static_cast<unsigned>(i)));
  const auto stats = Watch(trace, config_of(20, 512, 1)).run();
  EXPECT_GT(stats.evictions, 0);
  EXPECT_EQ(stats.preemptions, 0);
}

TEST(ReplayScheduler, AcceptsDraftsByRequestAndPositionAlone) {
  const auto alone = [] {
    Watch watch({request(0, 100, 200)}, config_of(100, 512, 4, 3));
    watch.run();
    std::map<std::int64_t, std::int64_t> accepted;
    for (const StepPlan& plan : watch.plans()) {
      for (const StepItem& item : plan.items) accepted[item.first_position] = item.accepted;
    }
    return accepted;
  }();
  Watch watch({request(0, 100, 200), request(0, 400, 90, 7)}, config_of(100, 64, 4, 3));
  const auto stats = watch.run();
  for (const StepPlan& plan : watch.plans()) {
    for (const StepItem& item : plan.items) {
      if (item.request != 0 || !item.decode) continue;
      ASSERT_TRUE(alone.contains(item.first_position));
      EXPECT_EQ(item.accepted, alone.at(item.first_position));
    }
  }
  // A draft counts where all before it do, and each does with a chance of 0.7.
  const double rate =
      static_cast<double>(stats.drafts_accepted) / static_cast<double>(stats.drafts_proposed);
  EXPECT_NEAR(rate, (0.7 + 0.49 + 0.343) / 3, 0.12);
}

TEST(ReplayScheduler, NamesTheRequestThatTheCacheIsTooSmallFor) {
  const std::vector<TraceRequest> trace = {request(0, 10, 1), request(0, 1000, 100)};
  const auto contents = contents_of(trace, 1);
  try {
    const Scheduler scheduler(trace, contents, config_of(9));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "replay: 'pages' is 9; allowed: at least 10, for request 1 with 1000 prompt and 100 "
        "output tokens");
  }
  EXPECT_NO_THROW(Scheduler(trace, contents, config_of(10)));
}

TEST(ReplayScheduler, NamesEveryWrongField) {
  SchedulerConfig config = config_of(1, 0, 0, 16);
  const std::vector<TraceRequest> trace;
  try {
    const Scheduler scheduler(trace, {}, config);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.failures().size(), 4u) << error.what();
  }
}

}  // namespace
}  // namespace msa::replay
