// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/page_allocator.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "msa/error.h"

namespace msa {
namespace {

using Sequence = PageAllocator::Sequence;
using Hashes = std::vector<std::uint64_t>;
using Pages = std::vector<std::int32_t>;

Pages pages_of(const Sequence& sequence) {
  return {sequence.pages().begin(), sequence.pages().end()};
}

/// A prompt of `tokens` tokens with pages for all of them.
std::optional<Sequence> begin(PageAllocator& allocator, const Hashes& hashes, std::int64_t tokens) {
  return allocator.begin({.hashes = hashes, .prompt_tokens = tokens, .reserve_tokens = tokens});
}

constexpr std::int64_t group = 512;  // tokens of a group of four pages

// ---------------------------------------------------------------------------------------------------
// Pages.

TEST(PageAllocator, HandsOutAscendingPagesAndNeverTheNullPage) {
  PageAllocator allocator({.pages = 5});
  auto a = begin(allocator, {}, 129);
  auto b = begin(allocator, {}, 256);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(pages_of(*a), (Pages{1, 2}));
  EXPECT_EQ(pages_of(*b), (Pages{3, 4}));
  EXPECT_EQ(allocator.available(), 0);
}

TEST(PageAllocator, UsesPageZeroWhereItIsNotReserved) {
  PageAllocator allocator({.pages = 2, .reserve_null_page = false});
  const auto a = begin(allocator, {}, 200);
  ASSERT_TRUE(a);
  EXPECT_EQ(pages_of(*a), (Pages{0, 1}));
}

TEST(PageAllocator, CapacityIsRoundedUpToPages) {
  PageAllocator allocator({.pages = 10});
  for (auto [tokens, pages] : {std::pair{1, 1}, {127, 1}, {128, 1}, {129, 2}, {256, 2}, {257, 3}}) {
    const auto s = begin(allocator, {}, tokens);
    ASSERT_TRUE(s);
    EXPECT_EQ(s->pages().size(), static_cast<std::size_t>(pages)) << tokens;
    EXPECT_EQ(s->capacity(), pages * 128);
  }
}

TEST(PageAllocator, SlotIsPageTimes128PlusOffset) {
  PageAllocator allocator({.pages = 10});
  const auto first = begin(allocator, {}, 1);
  const auto s = begin(allocator, {}, 300);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->slot(0), 2 * 128);
  EXPECT_EQ(s->slot(127), 2 * 128 + 127);
  EXPECT_EQ(s->slot(128), 3 * 128);
  EXPECT_EQ(s->slot(299), 4 * 128 + 43);
}

TEST(PageAllocator, GrowthKeepsThePagesThatAreThere) {
  PageAllocator allocator({.pages = 6});
  auto s = begin(allocator, {}, 128);
  ASSERT_TRUE(s);
  EXPECT_TRUE(allocator.grow(*s, 128));
  EXPECT_TRUE(allocator.grow(*s, 1));  // never shrinks
  EXPECT_EQ(pages_of(*s), (Pages{1}));
  EXPECT_TRUE(allocator.grow(*s, 129));
  EXPECT_TRUE(allocator.grow(*s, 500));
  EXPECT_EQ(pages_of(*s), (Pages{1, 2, 3, 4}));
}

TEST(PageAllocator, ReservationMayBeSmallerThanThePrompt) {
  PageAllocator allocator({.pages = 100});
  auto s = allocator.begin({.hashes = {}, .prompt_tokens = 5000, .reserve_tokens = 300});
  ASSERT_TRUE(s);
  EXPECT_EQ(s->pages().size(), 3u);
}

TEST(PageAllocator, FreedPagesAreReusedInTheirOrder) {
  PageAllocator allocator({.pages = 8});
  auto a = begin(allocator, {}, 384);
  auto b = begin(allocator, {}, 128);
  a->release();
  EXPECT_TRUE(a->pages().empty());
  EXPECT_EQ(pages_of(*begin(allocator, {}, 256)), (Pages{1, 2}));
}

TEST(PageAllocator, SequenceGivesItsPagesBackWhenItDies) {
  PageAllocator allocator({.pages = 5});
  {
    const auto s = begin(allocator, {}, 512);
    EXPECT_EQ(allocator.available(), 0);
  }
  EXPECT_EQ(allocator.available(), 4);
}

TEST(PageAllocator, MovedSequenceOwnsItsPagesOnce) {
  PageAllocator allocator({.pages = 9});
  Sequence a = std::move(*begin(allocator, {}, 512));
  Sequence b = std::move(*begin(allocator, {}, 512));
  a = std::move(b);  // gives back what a held
  EXPECT_EQ(allocator.available(), 4);
  EXPECT_EQ(pages_of(a), (Pages{5, 6, 7, 8}));
  a.release();
  a.release();
  EXPECT_EQ(allocator.available(), 8);
}

TEST(PageAllocator, FailureTakesNothing) {
  PageAllocator allocator({.pages = 5});
  auto a = begin(allocator, {}, 256);
  ASSERT_TRUE(a);
  EXPECT_FALSE(begin(allocator, {}, 385));
  EXPECT_EQ(allocator.available(), 2);
  EXPECT_FALSE(allocator.grow(*a, 641));
  EXPECT_EQ(allocator.available(), 2);
  EXPECT_EQ(pages_of(*a), (Pages{1, 2}));
  EXPECT_EQ(allocator.stats().failures, 2);
  EXPECT_TRUE(allocator.grow(*a, 512));
}

TEST(PageAllocator, EmptyPoolServesNothing) {
  for (bool reserve : {false, true}) {
    PageAllocator allocator({.pages = 0, .reserve_null_page = reserve});
    EXPECT_EQ(allocator.available(), 0);
    EXPECT_FALSE(begin(allocator, {}, 1));
    EXPECT_EQ(allocator.stats().pages_in_use, 0);
  }
}

TEST(PageAllocator, WrongUseIsAnErrorThatNamesIt) {
  try {
    PageAllocator bad({.pages = -1, .reserve_null_page = true, .pages_per_hash = 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.failures().size(), 2u);
    EXPECT_NE(std::string(error.what()).find("'pages' is -1"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("'pages_per_hash' is 0"), std::string::npos);
  }
  PageAllocator allocator({.pages = 5});
  PageAllocator other({.pages = 5});
  EXPECT_THROW(begin(allocator, {}, 0), Error);
  Sequence empty;
  EXPECT_THROW(allocator.grow(empty, 1), Error);
  auto s = begin(other, {}, 1);
  EXPECT_THROW(allocator.grow(*s, 200), Error);
  EXPECT_THROW(allocator.publish(*s, 1), Error);
  EXPECT_EQ(allocator.available(), 4);
}

// ---------------------------------------------------------------------------------------------------
// Sharing.

TEST(PageAllocatorSharing, PublishedPrefixIsShared) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {11, 12, 13}, 3 * group);
  allocator.publish(*a, 3 * group);
  auto b = begin(allocator, {11, 12, 99}, 3 * group);
  ASSERT_TRUE(b);
  EXPECT_EQ(b->cached_tokens(), 2 * group);
  EXPECT_TRUE(std::equal(b->pages().begin(), b->pages().begin() + 8, a->pages().begin()));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(allocator.references(b->pages()[i]), 2);
  for (std::size_t i = 8; i < 12; ++i) EXPECT_EQ(allocator.references(b->pages()[i]), 1);
  EXPECT_EQ(allocator.stats().pages_in_use, 12 + 4);
}

TEST(PageAllocatorSharing, OnlyWhatIsComputedIsPublished) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {11, 12}, 2 * group);
  EXPECT_FALSE(allocator.published(11));
  allocator.publish(*a, group - 1);
  EXPECT_FALSE(allocator.published(11));
  allocator.publish(*a, group);
  EXPECT_TRUE(allocator.published(11));
  EXPECT_FALSE(allocator.published(12));
  allocator.publish(*a, 2 * group + 77);
  EXPECT_TRUE(allocator.published(12));
}

TEST(PageAllocatorSharing, PartialLastGroupIsNotShared) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {11, 12}, group + 100);
  allocator.publish(*a, group + 100);
  EXPECT_TRUE(allocator.published(11));
  EXPECT_FALSE(allocator.published(12));
  allocator.publish(*a, 2 * group);  // decoded tokens are not what the hash stood for
  EXPECT_FALSE(allocator.published(12));
}

TEST(PageAllocatorSharing, LastTokenOfThePromptIsAlwaysLeftToCompute) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {11, 12}, 2 * group);
  allocator.publish(*a, 2 * group);
  EXPECT_EQ(begin(allocator, {11, 12}, 2 * group)->cached_tokens(), group);
  EXPECT_EQ(begin(allocator, {11, 12}, 2 * group + 1)->cached_tokens(), 2 * group);
}

TEST(PageAllocatorSharing, GroupBehindAGapIsNotFound) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {11, 12}, 2 * group);
  allocator.publish(*a, 2 * group);
  EXPECT_EQ(begin(allocator, {10, 12}, 3 * group)->cached_tokens(), 0);
}

TEST(PageAllocatorSharing, ReleasedGroupsStayCachedWithTheirPages) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {11, 12}, 2 * group + 1);
  allocator.publish(*a, 2 * group);
  const Pages before = pages_of(*a);
  a->release();
  EXPECT_EQ(allocator.stats().pages_cached, 8);
  EXPECT_EQ(allocator.stats().pages_in_use, 0);
  EXPECT_EQ(allocator.references(before[0]), 0);
  auto b = begin(allocator, {11, 12}, 2 * group + 1);
  EXPECT_EQ(b->cached_tokens(), 2 * group);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 8, b->pages().begin()));
  EXPECT_EQ(allocator.stats().pages_cached, 0);
}

TEST(PageAllocatorSharing, HashPublishedByAnotherKeepsThePagesPrivate) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {11}, group + 1);
  auto b = begin(allocator, {11}, group + 1);
  allocator.publish(*a, group);
  allocator.publish(*b, group);
  EXPECT_EQ(allocator.stats().duplicates, 1);
  const Pages twin(b->pages().begin(), b->pages().end());
  b->release();
  for (std::int32_t page : twin) EXPECT_EQ(allocator.references(page), 0);
  EXPECT_EQ(allocator.stats().pages_cached, 0);  // the copy is free, the original in use
  EXPECT_EQ(begin(allocator, {11}, group + 1)->pages()[0], a->pages()[0]);
}

TEST(PageAllocatorSharing, OldestGroupIsEvictedFirst) {
  PageAllocator allocator({.pages = 13});  // three groups
  for (std::uint64_t hash : {1, 2, 3}) {
    auto s = begin(allocator, {hash}, group);
    allocator.publish(*s, group);
  }
  begin(allocator, {1}, group + 1).reset();  // needs 1 page more than there is: evicts 2
  EXPECT_TRUE(allocator.published(1));
  EXPECT_FALSE(allocator.published(2));
  EXPECT_TRUE(allocator.published(3));
  EXPECT_EQ(allocator.stats().evictions, 1);
  const auto s = begin(allocator, {}, 2 * group);  // three free ones, then 3, then 1
  ASSERT_TRUE(s);
  EXPECT_TRUE(allocator.published(1));
  EXPECT_FALSE(allocator.published(3));
}

TEST(PageAllocatorSharing, EndOfAPrefixIsEvictedBeforeItsBeginning) {
  PageAllocator allocator({.pages = 13});
  auto s = begin(allocator, {1, 2, 3}, 3 * group);
  allocator.publish(*s, 3 * group);
  s->release();
  const auto one = begin(allocator, {}, 1);
  EXPECT_TRUE(allocator.published(1) && allocator.published(2));
  EXPECT_FALSE(allocator.published(3));
}

TEST(PageAllocatorSharing, GroupsAboutToBeSharedDoNotCountAsEvictable) {
  PageAllocator allocator({.pages = 9});  // two groups
  for (std::uint64_t hash : {1, 2}) {
    auto s = begin(allocator, {hash}, group);
    allocator.publish(*s, group);
  }
  // 1 is shared, 2 evicted: room for 8 pages, not for 9.
  EXPECT_FALSE(begin(allocator, {1}, 2 * group + 1));
  EXPECT_TRUE(allocator.published(1) && allocator.published(2));
  EXPECT_EQ(allocator.stats().pages_cached, 8);
  auto s = begin(allocator, {1}, 2 * group);
  ASSERT_TRUE(s);
  EXPECT_EQ(s->cached_tokens(), group);
  EXPECT_FALSE(allocator.published(2));
}

TEST(PageAllocatorSharing, FailedBeginDoesNotTouchTheOrderOfEviction) {
  PageAllocator allocator({.pages = 9});
  for (std::uint64_t hash : {1, 2}) {
    auto s = begin(allocator, {hash}, group);
    allocator.publish(*s, group);
  }
  EXPECT_FALSE(begin(allocator, {1}, 100 * group));
  const auto s = begin(allocator, {}, 1);
  EXPECT_FALSE(allocator.published(1));  // still the oldest
  EXPECT_TRUE(allocator.published(2));
}

TEST(PageAllocatorSharing, DropCachedKeepsWhatIsHeld) {
  PageAllocator allocator({.pages = 9});
  auto a = begin(allocator, {1}, group);
  allocator.publish(*a, group);
  {
    auto b = begin(allocator, {2}, group);
    allocator.publish(*b, group);
  }
  allocator.drop_cached();
  EXPECT_TRUE(allocator.published(1));
  EXPECT_FALSE(allocator.published(2));
  EXPECT_EQ(allocator.stats().pages_free, 4);
}

TEST(PageAllocatorSharing, StatsCountWhatHappened) {
  PageAllocator allocator({.pages = 40});
  auto a = begin(allocator, {1, 2}, 2 * group + 5);
  allocator.publish(*a, 2 * group);
  auto b = begin(allocator, {1, 3}, 2 * group + 7);
  auto stats = allocator.stats();
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.misses, 3);
  EXPECT_EQ(stats.prompt_tokens, 4 * group + 12);
  EXPECT_EQ(stats.cached_tokens, group);
  EXPECT_EQ(stats.pages_in_use, 9 + 5);
  EXPECT_EQ(stats.peak_in_use, 14);
  EXPECT_EQ(stats.pages_free, 39 - 14);
  a->release();
  EXPECT_EQ(allocator.stats().peak_in_use, 14);
  allocator.reset_stats();
  stats = allocator.stats();
  EXPECT_EQ(stats.hits + stats.misses + stats.prompt_tokens + stats.cached_tokens, 0);
  EXPECT_EQ(stats.peak_in_use, 9);
  EXPECT_EQ(stats.pages_in_use, 9);
  EXPECT_EQ(stats.pages_cached, 4);
}

// ---------------------------------------------------------------------------------------------------
// Against a model that looks at everything.

/// Prompts form a tree: the hash of a group says which path leads to it.
Hashes path(std::initializer_list<int> branches, std::size_t groups) {
  Hashes hashes;
  std::uint64_t hash = 1;
  std::size_t i = 0;
  for (; i < groups; ++i) {
    const int branch = i < branches.size() ? *(branches.begin() + i) : 0;
    hash = hash * 31 + static_cast<std::uint64_t>(branch) + 7;
    hashes.push_back(hash);
  }
  return hashes;
}

/// Drives an allocator and keeps, the slow way, what must be true of it.
class Model {
 public:
  Model(std::int64_t pages, bool reserve, int pages_per_hash)
      : allocator_({pages, reserve, pages_per_hash}), content_(static_cast<std::size_t>(pages)) {}

  void begin(const Hashes& hashes, std::int64_t tokens, std::int64_t reserve) {
    const Snapshot before = snapshot();
    std::int64_t found = 0;
    const std::int64_t limit = std::min<std::int64_t>(static_cast<std::int64_t>(hashes.size()),
                                                      (tokens - 1) / allocator_.group_tokens());
    std::int64_t idle = 0;
    while (found < limit && before.published.contains(hashes[static_cast<std::size_t>(found)])) {
      idle += std::count(lru_.begin(), lru_.end(), hashes[static_cast<std::size_t>(found)]);
      ++found;
    }
    const std::int64_t shared = found * per_hash();
    const std::int64_t fresh = std::max<std::int64_t>((reserve + 127) / 128 - shared, 0);
    const bool fits = fresh <= before.available - idle * per_hash();
    auto sequence =
        allocator_.begin({.hashes = hashes, .prompt_tokens = tokens, .reserve_tokens = reserve});
    RC_ASSERT(sequence.has_value() == fits);
    if (!fits) {
      RC_ASSERT(snapshot() == before);
      return;
    }
    RC_ASSERT(sequence->cached_tokens() == found * allocator_.group_tokens());
    Live live;
    live.groups =
        Hashes(hashes.begin(),
               hashes.begin() + std::min<std::int64_t>(static_cast<std::int64_t>(hashes.size()),
                                                       tokens / allocator_.group_tokens()));
    for (std::int64_t g = 0; g < found; ++g) {
      const std::uint64_t hash = hashes[static_cast<std::size_t>(g)];
      std::erase(lru_, hash);
      for (std::int64_t i = 0; i < per_hash(); ++i) {  // the cached bits are those of the prefix
        const std::int32_t page = sequence->pages()[static_cast<std::size_t>(g * per_hash() + i)];
        RC_ASSERT(content_[static_cast<std::size_t>(page)] == tag(hash, i));
      }
    }
    live.held = std::set<std::uint64_t>(hashes.begin(), hashes.begin() + found);
    live.sequence = std::move(*sequence);
    live.written = shared;
    evict(fresh, before.free);
    live_.push_back(std::move(live));
  }

  void grow(std::size_t which, std::int64_t tokens) {
    if (live_.empty()) return;
    Live& live = live_[which % live_.size()];
    const Snapshot before = snapshot();
    const Pages pages = pages_of(live.sequence);
    const std::int64_t fresh =
        std::max<std::int64_t>((tokens + 127) / 128 - static_cast<std::int64_t>(pages.size()), 0);
    const bool grown = allocator_.grow(live.sequence, tokens);
    RC_ASSERT(grown == (fresh <= before.available));
    if (!grown) {
      RC_ASSERT(snapshot() == before);
      return;
    }
    RC_ASSERT(std::equal(pages.begin(), pages.end(), live.sequence.pages().begin()));
    evict(fresh, before.free);
  }

  /// Writes the pages up to `pages` and publishes them.
  void publish(std::size_t which, std::int64_t pages) {
    if (live_.empty()) return;
    Live& live = live_[which % live_.size()];
    pages = std::min(pages, static_cast<std::int64_t>(live.sequence.pages().size()));
    for (; live.written < pages; ++live.written) {
      const auto g = static_cast<std::size_t>(live.written / per_hash());
      const std::int32_t page = live.sequence.pages()[static_cast<std::size_t>(live.written)];
      RC_ASSERT(allocator_.references(page) == 1);  // nobody else sees a page that is written
      content_[static_cast<std::size_t>(page)] =
          g < live.groups.size() ? tag(live.groups[g], live.written % per_hash()) : 0;
    }
    const auto full = std::min<std::int64_t>(static_cast<std::int64_t>(live.groups.size()),
                                             live.written / per_hash());
    for (std::int64_t g = live.offered; g < full; ++g) {
      const std::uint64_t hash = live.groups[static_cast<std::size_t>(g)];
      if (!allocator_.published(hash)) live.held.insert(hash);
    }
    allocator_.publish(live.sequence, live.written * 128);
    // A group is offered once: where another's copy was there first, that one may be gone by now.
    for (; live.offered < full; ++live.offered) {
      RC_ASSERT(allocator_.published(live.groups[static_cast<std::size_t>(live.offered)]));
    }
  }

  void release(std::size_t which) {
    if (live_.empty()) return;
    which %= live_.size();
    Live gone = std::move(live_[which]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(which));
    gone.sequence.release();
    for (auto g = gone.groups.rbegin(); g != gone.groups.rend(); ++g) {
      const bool used = std::any_of(live_.begin(), live_.end(),
                                    [&](const Live& l) { return l.held.contains(*g); });
      if (gone.held.contains(*g) && !used) lru_.push_back(*g);
    }
  }

  void check() const {
    std::map<std::int32_t, std::int64_t> owners;
    std::map<std::int32_t, std::uint64_t> tags;
    for (const Live& live : live_) {
      const auto pages = live.sequence.pages();
      for (std::size_t i = 0; i < pages.size(); ++i) {
        ++owners[pages[i]];
        const std::size_t g = i / static_cast<std::size_t>(per_hash());
        const bool shared = g < live.groups.size() && live.held.contains(live.groups[g]);
        const std::uint64_t owner = shared ? live.groups[g] : 0;
        const auto [known, added] = tags.try_emplace(pages[i], owner);
        // A page with two owners is the same part of the same group to both of them.
        RC_ASSERT(added || (owner != 0 && known->second == owner));
      }
    }
    const auto& config = allocator_.config();
    for (std::int32_t page = 0; page < config.pages; ++page) {
      const auto found = owners.find(page);
      RC_ASSERT(allocator_.references(page) == (found == owners.end() ? 0 : found->second));
    }
    RC_ASSERT(!config.reserve_null_page || !owners.contains(0));
    const auto stats = allocator_.stats();
    RC_ASSERT(stats.pages_in_use == static_cast<std::int64_t>(owners.size()));
    RC_ASSERT(stats.pages_cached == static_cast<std::int64_t>(lru_.size()) * per_hash());
    RC_ASSERT(stats.pages_in_use + stats.pages_cached + stats.pages_free ==
              std::max<std::int64_t>(config.pages - config.reserve_null_page, 0));
    RC_ASSERT(stats.evictions == evictions_);
    RC_ASSERT(stats.peak_in_use >= stats.pages_in_use);
    for (std::uint64_t hash : lru_) RC_ASSERT(allocator_.published(hash));
    for (std::uint64_t hash : evicted_) {
      RC_ASSERT(allocator_.published(hash) == held_or_cached(hash));
    }
  }

  std::vector<Pages> all_pages() const {
    std::vector<Pages> all;
    for (const Live& live : live_) all.push_back(pages_of(live.sequence));
    return all;
  }

 private:
  struct Live {
    Sequence sequence;
    Hashes groups;                 // of the prompt's full groups
    std::set<std::uint64_t> held;  // those of them whose published pages this sequence has
    std::int64_t written = 0;      // pages
    std::int64_t offered = 0;
  };
  struct Snapshot {
    std::int64_t available = 0;
    std::int64_t free = 0;
    std::set<std::uint64_t> published;
    std::vector<std::int64_t> references;

    bool operator==(const Snapshot&) const = default;
  };

  std::int64_t per_hash() const { return allocator_.config().pages_per_hash; }
  static std::uint64_t tag(std::uint64_t hash, std::int64_t page) {
    return hash * 64 + static_cast<std::uint64_t>(page) + 1;
  }
  bool held_or_cached(std::uint64_t hash) const {
    return std::count(lru_.begin(), lru_.end(), hash) > 0 ||
           std::any_of(live_.begin(), live_.end(),
                       [&](const Live& l) { return l.held.contains(hash); });
  }
  Snapshot snapshot() const {
    Snapshot s;
    s.available = allocator_.available();
    s.free = allocator_.stats().pages_free;
    for (std::uint64_t hash : lru_) s.published.insert(hash);
    for (const Live& live : live_) s.published.insert(live.held.begin(), live.held.end());
    for (std::uint64_t hash : s.published) RC_ASSERT(allocator_.published(hash));
    for (std::int32_t page = 0; page < allocator_.config().pages; ++page) {
      s.references.push_back(allocator_.references(page));
    }
    return s;
  }
  /// What taking `fresh` pages evicts when `free` pages are free.
  void evict(std::int64_t fresh, std::int64_t free) {
    for (; fresh > free; free += per_hash()) {
      evicted_.insert(lru_.front());
      lru_.erase(lru_.begin());
      ++evictions_;
    }
  }

  PageAllocator allocator_;
  std::vector<std::uint64_t> content_;  // what was last written to each page
  std::vector<Live> live_;
  std::vector<std::uint64_t> lru_;  // cached groups, oldest first
  std::set<std::uint64_t> evicted_;
  std::int64_t evictions_ = 0;
};

struct Action {
  int kind = 0;
  int a = 0, b = 0, c = 0, d = 0;
};
void showValue(const Action& x, std::ostream& out) {
  out << x.kind << '(' << x.a << ", " << x.b << ", " << x.c << ", " << x.d << ')';
}

rc::Gen<std::vector<Action>> actions() {
  const auto small = rc::gen::inRange(0, 6);
  return rc::gen::container<std::vector<Action>>(
      rc::gen::build<Action>(rc::gen::set(&Action::kind, rc::gen::inRange(0, 10)),
                             rc::gen::set(&Action::a, small), rc::gen::set(&Action::b, small),
                             rc::gen::set(&Action::c, small), rc::gen::set(&Action::d, small)));
}

void apply(Model& model, const Action& x, int per_hash) {
  const std::int64_t group_tokens = std::int64_t{per_hash} * 128;
  if (x.kind < 4) {
    const std::int64_t tokens = 1 + x.c * group_tokens / 2 + x.d * 40;
    const auto groups = static_cast<std::size_t>((tokens + group_tokens - 1) / group_tokens);
    model.begin(path({x.a % 2, x.b % 2, x.a % 3}, groups), tokens, x.d == 0 ? 1 : tokens);
  } else if (x.kind < 6) {
    model.grow(static_cast<std::size_t>(x.a), x.b * 200 + x.c);
  } else if (x.kind < 8) {
    model.publish(static_cast<std::size_t>(x.a), x.b * 3);
  } else {
    model.release(static_cast<std::size_t>(x.a));
  }
}

RC_GTEST_PROP(PageAllocatorModel, BehavesLikeTheModelUnderAnyCalls, ()) {
  const int per_hash = *rc::gen::inRange(1, 5);
  Model model(*rc::gen::inRange(0, 40), *rc::gen::arbitrary<bool>(), per_hash);
  for (const Action& x : *actions()) {
    apply(model, x, per_hash);
    model.check();
  }
}

RC_GTEST_PROP(PageAllocatorModel, SameCallsGiveTheSamePages, ()) {
  const int per_hash = *rc::gen::inRange(1, 5);
  const std::int64_t pages = *rc::gen::inRange(1, 40);
  const auto calls = *actions();
  Model a(pages, true, per_hash);
  Model b(pages, true, per_hash);
  for (const Action& x : calls) {
    apply(a, x, per_hash);
    apply(b, x, per_hash);
  }
  RC_ASSERT(a.all_pages() == b.all_pages());
}

}  // namespace
}  // namespace msa
