// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/page_allocator.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "msa/error.h"

namespace msa {
namespace {

// Values of page_state_ that are no group.
constexpr std::int32_t free_page = -1;
constexpr std::int32_t private_page = -2;

std::int64_t pages_for(std::int64_t tokens) {
  return std::max<std::int64_t>(tokens, 0) / page_size + (tokens > 0 && tokens % page_size != 0);
}

std::vector<std::string> failures_of(const PageAllocator::Config& config) {
  std::vector<std::string> failures;
  if (config.pages < 0 || config.pages > std::numeric_limits<std::int32_t>::max()) {
    failures.push_back("PageAllocator: field 'pages' is " + std::to_string(config.pages) +
                       "; allowed: 0 to 2147483647");
  }
  if (config.pages_per_hash < 1) {
    failures.push_back("PageAllocator: field 'pages_per_hash' is " +
                       std::to_string(config.pages_per_hash) + "; allowed: 1 or more");
  }
  return failures;
}

}  // namespace

PageAllocator::PageAllocator(const Config& config) : config_(config) {
  auto failures = failures_of(config);
  if (!failures.empty()) throw Error(ErrorCode::invalid_argument, std::move(failures));
  const auto pages = static_cast<std::size_t>(config.pages);
  const std::size_t groups = pages / static_cast<std::size_t>(config.pages_per_hash);
  page_state_.assign(pages, free_page);
  groups_.resize(groups);
  group_pages_.resize(groups * static_cast<std::size_t>(config.pages_per_hash));
  // Full capacity now: `release` must never allocate. Stacked downwards, so that ids come out
  // upwards.
  free_pages_.reserve(pages);
  for (std::int64_t page = config.pages - 1; page >= (config.reserve_null_page ? 1 : 0); --page) {
    free_pages_.push_back(static_cast<std::int32_t>(page));
  }
  free_groups_.reserve(groups);
  for (std::size_t group = groups; group > 0; --group) {
    free_groups_.push_back(static_cast<std::int32_t>(group - 1));
  }
  groups_by_hash_.reserve(groups);
}

std::optional<PageAllocator::Sequence> PageAllocator::begin(const Request& request) {
  if (request.prompt_tokens < 1) {
    throw Error(ErrorCode::invalid_argument, "PageAllocator: field 'prompt_tokens' is " +
                                                 std::to_string(request.prompt_tokens) +
                                                 "; allowed: 1 or more");
  }
  const auto full = std::min<std::int64_t>(static_cast<std::int64_t>(request.hashes.size()),
                                           request.prompt_tokens / group_tokens());
  // One token at least is left to compute: its output is what the request is about.
  const auto wanted = std::min(full, (request.prompt_tokens - 1) / group_tokens());
  const Hits hits = find(request.hashes.first(static_cast<std::size_t>(wanted)));
  const std::int64_t shared_pages = hits.groups * config_.pages_per_hash;
  const std::int64_t pages = std::max(pages_for(request.reserve_tokens), shared_pages);
  // Cached groups that become shared are no longer there to be evicted.
  if (pages - shared_pages > available() - hits.idle * config_.pages_per_hash) {
    ++stats_.failures;
    return std::nullopt;
  }

  Sequence sequence;
  sequence.pages_.reserve(static_cast<std::size_t>(pages));
  sequence.hashes_.assign(request.hashes.begin(), request.hashes.begin() + full);
  sequence.allocator_ = this;
  for (std::int64_t i = 0; i < hits.groups; ++i) {
    hold(groups_by_hash_.find(sequence.hashes_[static_cast<std::size_t>(i)])->second, sequence);
  }
  sequence.published_ = hits.groups;
  sequence.cached_tokens_ = hits.groups * group_tokens();
  take_pages(sequence, pages - shared_pages);

  stats_.hits += hits.groups;
  stats_.misses += wanted - hits.groups;
  stats_.prompt_tokens += request.prompt_tokens;
  stats_.cached_tokens += sequence.cached_tokens_;
  return sequence;
}

bool PageAllocator::grow(Sequence& sequence, std::int64_t tokens) {
  check_owner(sequence, "grow");
  const std::int64_t missing =
      pages_for(tokens) - static_cast<std::int64_t>(sequence.pages_.size());
  if (missing <= 0) return true;
  if (missing > available()) {
    ++stats_.failures;
    return false;
  }
  auto& pages = sequence.pages_;
  const std::size_t needed = pages.size() + static_cast<std::size_t>(missing);
  // Doubled, since decoding grows by one page at a time.
  if (needed > pages.capacity()) pages.reserve(std::max(needed, 2 * pages.capacity()));
  take_pages(sequence, missing);
  return true;
}

void PageAllocator::publish(Sequence& sequence, std::int64_t computed_tokens) {
  check_owner(sequence, "publish");
  const std::int64_t full = std::min({static_cast<std::int64_t>(sequence.hashes_.size()),
                                      std::max<std::int64_t>(computed_tokens, 0) / group_tokens(),
                                      sequence.capacity() / group_tokens()});
  for (; sequence.published_ < full; ++sequence.published_) {
    const std::uint64_t hash = sequence.hashes_[static_cast<std::size_t>(sequence.published_)];
    // There is an entry for as many groups as the pages can form, so one is left for this group.
    const std::int32_t group = free_groups_.back();
    if (!groups_by_hash_.try_emplace(hash, group).second) {
      ++stats_.duplicates;
      continue;
    }
    free_groups_.pop_back();
    groups_[static_cast<std::size_t>(group)] = {.hash = hash, .references = 1};
    const auto first = sequence.pages_.begin() + sequence.published_ * config_.pages_per_hash;
    std::copy(first, first + config_.pages_per_hash, pages_of(group).begin());
    for (std::int32_t page : pages_of(group)) page_state_[static_cast<std::size_t>(page)] = group;
  }
}

void PageAllocator::drop_cached() {
  while (oldest_ >= 0) free_oldest();
}

std::int64_t PageAllocator::available() const {
  return static_cast<std::int64_t>(free_pages_.size()) + stats_.pages_cached;
}

std::int64_t PageAllocator::references(std::int32_t page) const {
  if (page < 0 || page >= config_.pages) return 0;
  const std::int32_t state = page_state_[static_cast<std::size_t>(page)];
  if (state >= 0) return groups_[static_cast<std::size_t>(state)].references;
  return state == private_page ? 1 : 0;
}

PageAllocator::Stats PageAllocator::stats() const {
  Stats stats = stats_;
  stats.pages_free = static_cast<std::int64_t>(free_pages_.size());
  stats.pages_in_use = pages_in_use();
  return stats;
}

void PageAllocator::reset_stats() {
  Stats fresh;
  fresh.pages_cached = stats_.pages_cached;
  fresh.peak_in_use = pages_in_use();
  stats_ = fresh;
}

PageAllocator::Hits PageAllocator::find(std::span<const std::uint64_t> hashes) const {
  Hits hits;
  for (std::uint64_t hash : hashes) {
    const auto found = groups_by_hash_.find(hash);
    if (found == groups_by_hash_.end()) break;
    ++hits.groups;
    hits.idle += groups_[static_cast<std::size_t>(found->second)].references == 0;
  }
  return hits;
}

void PageAllocator::hold(std::int32_t group, Sequence& sequence) noexcept {
  if (groups_[static_cast<std::size_t>(group)].references++ == 0) unlink(group);
  const auto pages = pages_of(group);
  sequence.pages_.insert(sequence.pages_.end(), pages.begin(), pages.end());
}

void PageAllocator::take_pages(Sequence& sequence, std::int64_t pages) noexcept {
  for (; pages > 0; --pages) {
    if (free_pages_.empty()) {
      free_oldest();
      ++stats_.evictions;
    }
    const std::int32_t page = free_pages_.back();
    free_pages_.pop_back();
    page_state_[static_cast<std::size_t>(page)] = private_page;
    sequence.pages_.push_back(page);
  }
  stats_.peak_in_use = std::max(stats_.peak_in_use, pages_in_use());
}

void PageAllocator::release(Sequence& sequence) noexcept {
  // Backwards: the end of a prefix is cached as older than its beginning, and single pages come out
  // of the stack in the order in which they went into the sequence.
  for (std::size_t i = sequence.pages_.size(); i > 0; --i) {
    const std::int32_t page = sequence.pages_[i - 1];
    std::int32_t& state = page_state_[static_cast<std::size_t>(page)];
    if (state == private_page) {
      state = free_page;
      free_pages_.push_back(page);
    } else if ((i - 1) % static_cast<std::size_t>(config_.pages_per_hash) == 0) {
      drop(state);
    }
  }
}

void PageAllocator::drop(std::int32_t group) noexcept {
  if (--groups_[static_cast<std::size_t>(group)].references == 0) append_newest(group);
}

void PageAllocator::free_oldest() noexcept {
  const std::int32_t group = oldest_;
  unlink(group);
  groups_by_hash_.erase(groups_[static_cast<std::size_t>(group)].hash);
  const auto pages = pages_of(group);
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    page_state_[static_cast<std::size_t>(*page)] = free_page;
    free_pages_.push_back(*page);
  }
  free_groups_.push_back(group);
}

void PageAllocator::append_newest(std::int32_t group) noexcept {
  Group& added = groups_[static_cast<std::size_t>(group)];
  added.older = newest_;
  added.newer = -1;
  (newest_ >= 0 ? groups_[static_cast<std::size_t>(newest_)].newer : oldest_) = group;
  newest_ = group;
  stats_.pages_cached += config_.pages_per_hash;
}

void PageAllocator::unlink(std::int32_t group) noexcept {
  const Group& gone = groups_[static_cast<std::size_t>(group)];
  (gone.older >= 0 ? groups_[static_cast<std::size_t>(gone.older)].newer : oldest_) = gone.newer;
  (gone.newer >= 0 ? groups_[static_cast<std::size_t>(gone.newer)].older : newest_) = gone.older;
  stats_.pages_cached -= config_.pages_per_hash;
}

std::span<std::int32_t> PageAllocator::pages_of(std::int32_t group) {
  const auto count = static_cast<std::size_t>(config_.pages_per_hash);
  return std::span(group_pages_).subspan(static_cast<std::size_t>(group) * count, count);
}

std::int64_t PageAllocator::pages_in_use() const {
  const std::int64_t usable =
      std::max<std::int64_t>(config_.pages - (config_.reserve_null_page ? 1 : 0), 0);
  return usable - available();
}

void PageAllocator::check_owner(const Sequence& sequence, const char* call) const {
  if (sequence.allocator_ == this) return;
  throw Error(ErrorCode::invalid_argument,
              std::string("PageAllocator::") + call + ": argument 'sequence' is " +
                  (sequence.allocator_ == nullptr ? "empty" : "another allocator's") +
                  "; allowed: a sequence that this allocator began");
}

PageAllocator::Sequence::Sequence(Sequence&& other) noexcept { *this = std::move(other); }

PageAllocator::Sequence& PageAllocator::Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  release();
  allocator_ = std::exchange(other.allocator_, nullptr);
  pages_ = std::exchange(other.pages_, {});
  hashes_ = std::exchange(other.hashes_, {});
  published_ = std::exchange(other.published_, 0);
  cached_tokens_ = std::exchange(other.cached_tokens_, 0);
  return *this;
}

void PageAllocator::Sequence::release() noexcept {
  if (allocator_ != nullptr) allocator_->release(*this);
  allocator_ = nullptr;
  pages_.clear();
  hashes_.clear();
  published_ = 0;
  cached_tokens_ = 0;
}

}  // namespace msa
