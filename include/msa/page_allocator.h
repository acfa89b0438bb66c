// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "msa/export.h"
#include "msa/types.h"

/// \file
/// Which physical pages a sequence owns: allocation, prefix sharing by content hash, eviction.

namespace msa {

/// Hands out the pages of one cache (or of several caches that use the same page ids).
///
/// A page is in one of four states: *free*; *private*, owned by one sequence; *shared*, part of a
/// published group that one or more sequences hold; *cached*, part of a published group that nobody
/// holds. A *group* is `pages_per_hash` consecutive full pages of a prompt with one content hash;
/// it is found, shared and evicted as a whole. Pages are never cleared: a new owner finds the old
/// bits, which the operators do not look at.
///
///     begin ──► private ──publish──► shared ──last release──► cached ──begin with its hash──►
///     shared
///       ▲          │ release                                    │ evicted, least recently used
///       first └── free ◄─┴────────────────────────────────────────────┘
///
/// New pages come from the free ones (last freed first), then from the cached group that was
/// released the longest ago. Of one sequence, later groups are evicted before earlier ones, since a
/// group is only found behind its whole prefix.
///
/// Deterministic: the pages handed out depend on the sequence of calls alone. Finding, sharing,
/// publishing or evicting a group, and allocating or freeing a page, take O(1) expected time each,
/// so a call takes O(pages it touches) whatever the size of the cache; memory is O(pages). Not
/// thread-safe: one scheduler owns it.
class MSA_API PageAllocator {
 public:
  /// Sizes.
  struct Config {
    std::int64_t pages = 0;  ///< pages of the cache, ids 0 … pages − 1; at most 2^31 − 1
    bool reserve_null_page = true;  ///< page 0 is never handed out
    int pages_per_hash = 4;         ///< pages of a group; 4 pages = 512 tokens
  };

  /// Pages are counted now, everything else since construction or `reset_stats`.
  struct Stats {
    std::int64_t pages_in_use = 0;   ///< private and shared
    std::int64_t pages_cached = 0;   ///< evictable
    std::int64_t pages_free = 0;     ///< without content anybody could ask for
    std::int64_t peak_in_use = 0;    ///< largest pages_in_use
    std::int64_t hits = 0;           ///< groups that `begin` found
    std::int64_t misses = 0;         ///< groups that `begin` was asked for and did not find
    std::int64_t prompt_tokens = 0;  ///< tokens of all prompts begun
    std::int64_t cached_tokens = 0;  ///< those of them that were found: the hit rate's numerator
    std::int64_t evictions = 0;      ///< cached groups that were given up
    std::int64_t duplicates = 0;     ///< groups not published because their hash already was
    std::int64_t failures = 0;       ///< calls of `begin` and `grow` that found too few pages
  };

  /// What a new sequence asks for.
  struct Request {
    /// One hash a group of the prompt, in order. A hash must stand for the content of its group
    /// *and* of everything before it, since keys depend on the whole prefix. Hashes past the
    /// prompt's last full group are ignored, so a hash of a partial last group may be present.
    std::span<const std::uint64_t> hashes;
    std::int64_t prompt_tokens = 0;   ///< tokens of the prompt, ≥ 1
    std::int64_t reserve_tokens = 0;  ///< pages are allocated for so many tokens (prefix included)
  };

  /// The pages of one sequence; frees them when it dies, which must be before the allocator does.
  class MSA_API Sequence {
   public:
    /// No pages.
    Sequence() = default;
    /// Takes the pages over; `other` is empty afterwards.
    Sequence(Sequence&& other) noexcept;
    /// Releases the own pages first.
    Sequence& operator=(Sequence&& other) noexcept;
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;
    ~Sequence() { release(); }

    /// Logical page → physical page: the sequence's row of the block table.
    std::span<const std::int32_t> pages() const { return pages_; }
    /// Tokens that the pages can hold.
    std::int64_t capacity() const { return static_cast<std::int64_t>(pages_.size()) * page_size; }
    /// Leading tokens whose cache contents were found at `begin`; less than the prompt's tokens.
    std::int64_t cached_tokens() const { return cached_tokens_; }
    /// Slot of token `token` < capacity(): what slot_mapping holds.
    std::int64_t slot(std::int64_t token) const {
      return std::int64_t{pages_[token / page_size]} * page_size + token % page_size;
    }

    /// Gives all pages back; the sequence is empty afterwards. Published groups stay cached.
    void release() noexcept;

   private:
    friend class PageAllocator;
    PageAllocator* allocator_ = nullptr;  // null = empty
    std::vector<std::int32_t> pages_;
    std::vector<std::uint64_t> hashes_;  // of the prompt's full groups
    std::int64_t published_ = 0;         // groups that were found or offered to the cache
    std::int64_t cached_tokens_ = 0;
  };

  /// \throws Error naming every wrong field.
  explicit PageAllocator(const Config& config);
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;

  /// Starts a sequence: shares the longest run of leading groups that are published, and allocates
  /// private pages up to `reserve_tokens`. At least the prompt's last token is left to compute, so
  /// a group that ends the prompt exactly is not shared. Nothing when too few pages are free or
  /// evictable; the allocator is then as before, but for `failures`.
  /// \throws Error for a request without tokens.
  std::optional<Sequence> begin(const Request& request);

  /// Adds private pages until the sequence can hold `tokens` tokens. All or nothing: false leaves
  /// everything as before, but for `failures`.
  bool grow(Sequence& sequence, std::int64_t tokens);

  /// Makes the groups that lie within the first `computed_tokens` tokens available to other
  /// sequences; call it once their keys and values are written (or surely will be, in stream order,
  /// before a sharer reads them). A group is offered once; where its hash is published
  /// already, it stays private.
  void publish(Sequence& sequence, std::int64_t computed_tokens);

  /// Forgets all cached groups: their pages become free. Groups that are held stay.
  void drop_cached();

  /// As given.
  const Config& config() const { return config_; }
  /// Tokens of a group.
  std::int64_t group_tokens() const { return std::int64_t{config_.pages_per_hash} * page_size; }
  /// Pages that `begin` and `grow` could hand out now: free and cached ones.
  std::int64_t available() const;
  /// Sequences that hold `page`: 0 for a free or cached one.
  std::int64_t references(std::int32_t page) const;
  /// True where a group of this hash is published.
  bool published(std::uint64_t hash) const { return groups_by_hash_.contains(hash); }
  /// Counters so far.
  Stats stats() const;
  /// Zeroes the counters; the peak starts at what is in use.
  void reset_stats();

 private:
  struct Group {
    std::uint64_t hash = 0;
    std::int32_t references = 0;
    std::int32_t older = -1;  // neighbours in the list of cached groups, −1 = none
    std::int32_t newer = -1;
  };

  /// What `begin` finds of a prompt: the leading groups published, and how many of them nobody
  /// holds.
  struct Hits {
    std::int64_t groups = 0;
    std::int64_t idle = 0;
  };

  Hits find(std::span<const std::uint64_t> hashes) const;
  void hold(std::int32_t group, Sequence& sequence) noexcept;
  void take_pages(Sequence& sequence, std::int64_t pages) noexcept;
  void release(Sequence& sequence) noexcept;
  void drop(std::int32_t group) noexcept;
  void free_oldest() noexcept;
  void append_newest(std::int32_t group) noexcept;
  void unlink(std::int32_t group) noexcept;
  std::span<std::int32_t> pages_of(std::int32_t group);
  std::int64_t pages_in_use() const;
  void check_owner(const Sequence& sequence, const char* call) const;

  Config config_;
  std::vector<std::int32_t> free_pages_;  // a stack
  std::vector<std::int32_t> page_state_;  // group of a page, or one of two negative marks
  std::vector<Group> groups_;  // pool; pages of group g: group_pages_[g · n, (g + 1) · n)
  std::vector<std::int32_t> group_pages_;
  std::vector<std::int32_t> free_groups_;  // unused entries of groups_, a stack
  std::unordered_map<std::uint64_t, std::int32_t> groups_by_hash_;
  std::int32_t oldest_ = -1;  // ends of the list of cached groups
  std::int32_t newest_ = -1;
  Stats stats_;
};

}  // namespace msa
