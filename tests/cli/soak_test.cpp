// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apart_place.h"
#include "cli/soak/soak.h"

/// \file
/// The soak's parts: its traffic, and that a lane sees what is wrong.

namespace msa::soak {
namespace {

using cli::ApartPlace;

TEST(Traffic, gives_every_page_to_its_owners_alone) {
  const TrafficConfig config{
      .pages = 20, .index_pages = 23, .max_batch = 6, .chunk = 200, .m = 3, .max_keys = 900};
  Traffic traffic(config, 5);
  std::int64_t steps = 0;
  for (; steps < 3000; ++steps) {
    const StepPlan& plan = traffic.next();
    ASSERT_GT(plan.tokens(), 0);
    ASSERT_LE(plan.tokens(), traffic.max_tokens());
    std::set<std::int32_t> written, written_index;
    bool prefill = false;
    for (const StepItem& item : plan.items) {
      ASSERT_LE(item.seq_len(), config.max_keys);
      ASSERT_TRUE(item.decode ? !prefill && item.query_len == config.m : true);
      prefill = prefill || !item.decode;
      const auto pages = static_cast<std::size_t>((item.seq_len() + page_size - 1) / page_size);
      ASSERT_GE(item.pages.size(), pages);
      ASSERT_GE(item.index_pages.size(), pages);
      for (std::size_t p = 0; p < item.pages.size(); ++p) {
        ASSERT_FALSE(traffic.main().is_free(item.pages[p]));
        ASSERT_FALSE(traffic.index().is_free(item.index_pages[p]));
      }
      // What a step writes is nobody else's.
      for (std::int64_t p = item.first_position / page_size;
           item.query_len > 0 && p <= (item.seq_len() - 1) / page_size; ++p) {
        ASSERT_TRUE(written.insert(item.pages[static_cast<std::size_t>(p)]).second);
        ASSERT_TRUE(written_index.insert(item.index_pages[static_cast<std::size_t>(p)]).second);
      }
    }
    for (const StepItem& item : plan.items) {
      for (std::int64_t p = 0; p < item.first_position / page_size; ++p) {
        ASSERT_FALSE(written.contains(item.pages[static_cast<std::size_t>(p)]));
      }
    }
    traffic.complete();
  }
  EXPECT_GT(traffic.stats().finished, 100);
  EXPECT_GT(traffic.stats().forked, 10);
  EXPECT_GT(traffic.stats().evicted, 100);
}

TEST(Traffic, moves_everybody_to_pages_of_another_cache) {
  const TrafficConfig config{
      .pages = 40, .index_pages = 40, .max_batch = 8, .chunk = 300, .m = 1, .max_keys = 700};
  Traffic traffic(config, 2);
  for (int round = 0; round < 50; ++round) {
    for (int step = 0; step < 5; ++step) {
      traffic.next();
      traffic.complete();
    }
    const Traffic::Moves moves = traffic.move(44, 41);
    EXPECT_EQ(traffic.main().size(), 44);
    std::set<std::int64_t> from, to;
    for (std::size_t i = 0; i < moves.main.size(); i += 2) {
      EXPECT_TRUE(from.insert(moves.main[i]).second);
      EXPECT_TRUE(to.insert(moves.main[i + 1]).second);
      EXPECT_FALSE(traffic.main().is_free(moves.main[i + 1]));
    }
    for (std::int64_t page = 0; page < 44; ++page) {
      EXPECT_EQ(traffic.main().is_free(page), !to.contains(page));
    }
    EXPECT_EQ(moves.index.empty(), moves.main.empty());
  }
}

/// Serves steps in a place of its own memory until something is wrong.
std::string first_wrong(const LaneConfig& config, std::unique_ptr<Place> place, int steps,
                        LaneStats* stats = nullptr) {
  Lane lane(std::move(place), config);
  std::string wrong;
  for (int i = 0; i < steps && wrong.empty(); ++i) {
    lane.launch();
    wrong = lane.finish();
  }
  if (stats != nullptr) *stats = lane.stats();
  return wrong;
}

TEST(Lane, finds_nothing_wrong_with_memory_of_its_own) {
  LaneStats stats;
  EXPECT_EQ(
      first_wrong({.seed = 3, .rows_per_step = 6}, std::make_unique<ApartPlace>(), 150, &stats),
      "");
  EXPECT_EQ(stats.steps, 150);
  EXPECT_GE(stats.rows, 150);
  EXPECT_GT(stats.episodes, 1);
  EXPECT_GT(stats.captured_steps, 0);
  EXPECT_GT(stats.pages_poisoned, 0);
  EXPECT_GT(stats.pages_checked, 0);
  EXPECT_GT(stats.worst_share, 0);
}

TEST(Lane, repeats_itself) {
  LaneStats a, b;
  first_wrong({.seed = 9, .rows_per_step = 1}, std::make_unique<ApartPlace>(), 20, &a);
  first_wrong({.seed = 9, .rows_per_step = 1}, cli::choose_place("soak", "cpu"), 20, &b);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.worst_share, b.worst_share);
}

TEST(Lane, finds_a_spoiled_row) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    LaneStats stats;
    const std::string wrong = first_wrong({.seed = seed, .rows_per_step = 1, .fault_step = 7},
                                          std::make_unique<ApartPlace>(), 20, &stats);
    EXPECT_NE(wrong.find("wrong attend; attend: head 0, element 0 is "), std::string::npos)
        << wrong;
    EXPECT_EQ(stats.steps, 7);
  }
}

/// Memory in which something else writes: `damage` sees what comes back from the place.
class DamagedPlace final : public ApartPlace {
 public:
  using Damage = std::function<void(unsigned char* memory, std::size_t bytes)>;
  explicit DamagedPlace(Damage damage) : damage_(std::move(damage)) {}
  void download(void* to, const void* from, std::size_t bytes) override {
    ApartPlace::download(to, from, bytes);
    damage_(static_cast<unsigned char*>(to), bytes);
  }

 private:
  Damage damage_;
};

TEST(Lane, finds_a_write_to_what_nobody_owns) {
  // A byte in the middle of each page's worth of poison: of free pages and of rows past the batch.
  const auto damage = [](unsigned char* memory, std::size_t bytes) {
    constexpr std::size_t run = 4096;
    for (std::size_t at = 0; at + run <= bytes; at += run) {
      if (std::all_of(memory + at, memory + at + run, [](unsigned char b) { return b == 0xff; })) {
        memory[at + run / 2] = 0;
      }
    }
  };
  const std::string wrong =
      first_wrong({.seed = 4, .rows_per_step = 1}, std::make_unique<DamagedPlace>(damage), 20);
  EXPECT_NE(wrong.find("was written"), std::string::npos) << wrong;
}

TEST(Lane, finds_a_key_that_is_not_what_was_written) {
  // Half of a cache's pages lose a mantissa bit or more of every element.
  const auto damage = [](unsigned char* memory, std::size_t bytes) {
    for (std::size_t at = 0; bytes >= 32768 && at < bytes; ++at) memory[at] ^= 0x10;
  };
  const std::string wrong =
      first_wrong({.seed = 4, .rows_per_step = 1}, std::make_unique<DamagedPlace>(damage), 20);
  EXPECT_NE(wrong.find("write_cache: "), std::string::npos) << wrong;
}

TEST(Soak, says_which_call_threw) {
  int places = 0;
  const auto make_place = [&places]() -> std::unique_ptr<Place> {
    ++places;
    return std::make_unique<ApartPlace>(Device{DeviceType::cuda, 1000});
  };
  SoakOptions options;
  options.seconds = 20;
  options.threads = 2;
  const SoakReport report = run_soak(options, make_place, {});
  EXPECT_EQ(places, 4);
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.wrong.find("seed 1, lane "), std::string::npos) << report.wrong;
  EXPECT_NE(report.wrong.find("thrown: "), std::string::npos) << report.wrong;
}

}  // namespace
}  // namespace msa::soak
