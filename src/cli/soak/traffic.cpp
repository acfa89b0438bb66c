// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/soak/traffic.h"

#include <algorithm>
#include <map>
#include <utility>

namespace msa::soak {
namespace {

constexpr std::int64_t arrival_permille = 400;  // a step, while there is room
constexpr std::int64_t fork_permille = 250;     // of arrivals
constexpr std::int64_t eviction_permille = 30;  // a step, for no reason
constexpr std::int64_t empty_permille = 300;    // of requests for which the step has no tokens
constexpr std::int64_t most_outputs = 48;       // tokens

std::int64_t pages_of(std::int64_t keys) { return (keys + page_size - 1) / page_size; }

}  // namespace

PagePool::PagePool(std::int64_t pages) : owners_(static_cast<std::size_t>(pages)) {
  free_.reserve(owners_.size());
  for (std::int64_t page = 0; page < pages; ++page)
    free_.push_back(static_cast<std::int32_t>(page));
}

std::int32_t PagePool::take(SplitMix64& random) {
  const auto at = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(free_.size())));
  std::swap(free_[at], free_.back());
  const std::int32_t page = free_.back();
  free_.pop_back();
  share(page);
  return page;
}

void PagePool::release(std::int32_t page) {
  if (--owners_[static_cast<std::size_t>(page)] > 0) return;
  free_.push_back(page);
  freed.push_back(page);
}

TrafficStats& TrafficStats::operator+=(const TrafficStats& other) {
  arrived += other.arrived;
  forked += other.forked;
  finished += other.finished;
  evicted += other.evicted;
  return *this;
}

Traffic::Traffic(const TrafficConfig& config, std::uint64_t seed)
    : config_(config), random_(seed), main_(config.pages), index_(config.index_pages) {}

void Traffic::begin(std::int64_t prompt, std::int64_t total) {
  Request request;
  request.id = ids_++;
  request.total = std::min(total, config_.max_keys - config_.m);
  request.prompt = std::clamp<std::int64_t>(prompt, 1, request.total);
  if (!running_.empty() && random_.chance(fork_permille)) {
    // A prefix of whole pages is shared; at least one token of the prompt is left to compute.
    const Request& parent = running_[static_cast<std::size_t>(
        random_.below(static_cast<std::int64_t>(running_.size())))];
    const std::int64_t shared =
        random_.below(std::min(parent.keys, request.total - 1) / page_size + 1);
    for (std::int64_t i = 0; i < shared; ++i) {
      const auto at = static_cast<std::size_t>(i);
      request.pages.push_back(parent.pages[at]);
      request.index_pages.push_back(parent.index_pages[at]);
      main_.share(parent.pages[at]);
      index_.share(parent.index_pages[at]);
    }
    request.keys = shared * page_size;
    request.prompt = std::max(request.prompt, request.keys + 1);
    stats_.forked += shared > 0 ? 1 : 0;
  }
  ++stats_.arrived;
  running_.push_back(std::move(request));
}

void Traffic::admit() {
  while (static_cast<std::int64_t>(running_.size()) < config_.max_batch &&
         (running_.empty() || random_.chance(arrival_permille))) {
    if (!evicted_.empty()) {
      running_.push_back(std::move(evicted_.front()));
      evicted_.pop_front();
      continue;
    }
    // The smaller of two draws: short prompts are frequent.
    const std::int64_t prompt =
        1 + std::min(random_.below(config_.max_keys), random_.below(config_.max_keys));
    begin(prompt, prompt + random_.below(most_outputs));
  }
}

bool Traffic::grow(Request& request) {
  const std::int64_t wanted = pages_of(request.keys + request.query);
  while (static_cast<std::int64_t>(request.pages.size()) < wanted) {
    if (main_.empty() || index_.empty()) return false;
    request.pages.push_back(main_.take(random_));
    request.index_pages.push_back(index_.take(random_));
  }
  return true;
}

void Traffic::release(Request& request) {
  for (const std::int32_t page : request.pages) main_.release(page);
  for (const std::int32_t page : request.index_pages) index_.release(page);
  request.pages.clear();
  request.index_pages.clear();
}

void Traffic::evict(std::size_t place) {
  Request request = std::move(running_[place]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(place));
  release(request);
  request.prompt = std::max(request.prompt, request.keys);  // what it had said is prompt now
  request.keys = 0;
  evicted_.push_back(std::move(request));
  ++stats_.evicted;
}

const StepPlan& Traffic::next() {
  plan_ = {};
  while (plan_.tokens() == 0) {
    if (!running_.empty() && random_.chance(eviction_permille)) {
      evict(static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(running_.size()))));
    }
    admit();
    std::int64_t budget = random_.below(config_.chunk + 1);
    for (Request& request : running_) {
      request.query = config_.m;
      if (request.decodes()) continue;
      const std::int64_t left = request.prompt - request.keys;
      request.query = std::min(budget, random_.chance(500) ? left : 1 + random_.below(left));
      budget -= request.query;
    }
    for (std::size_t i = 0; i < running_.size();) {
      if (grow(running_[i])) {
        ++i;
        continue;
      }
      const auto victim =
          static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(running_.size())));
      evict(victim);
      if (victim < i) --i;
    }
    plan_.items.clear();
    for (const bool decode : {true, false}) {
      for (const Request& request : running_) {
        if (request.decodes() != decode) continue;
        if (request.query == 0 && !random_.chance(empty_permille)) continue;
        if (request.keys + request.query == 0) continue;  // nothing yet, and no page
        StepItem item;
        item.request = request.id;
        item.first_position = request.keys;
        item.query_len = request.query;
        item.decode = decode;
        item.accepted = decode ? 1 + random_.below(config_.m) : 0;
        item.pages = request.pages;
        item.index_pages = request.index_pages;
        plan_.items.push_back(item);
        (decode ? plan_.decode_tokens : plan_.prefill_tokens) += item.query_len;
      }
    }
  }
  return plan_;
}

void Traffic::complete() {
  for (const StepItem& item : plan_.items) {
    const auto request =
        std::find_if(running_.begin(), running_.end(),
                     [&](const Request& candidate) { return candidate.id == item.request; });
    request->keys += item.decode ? item.accepted : item.query_len;
    if (request->keys < request->total) continue;
    release(*request);
    running_.erase(request);
    ++stats_.finished;
  }
  plan_ = {};
}

Traffic::Moves Traffic::move(std::int64_t pages, std::int64_t index_pages) {
  Moves moves;
  const auto move_pool = [this](PagePool& pool, std::int64_t size,
                                std::vector<std::int32_t> Request::*list,
                                std::vector<std::int64_t>& pairs) {
    PagePool to(size);
    std::map<std::int32_t, std::int32_t> moved;
    for (Request& request : running_) {
      for (std::int32_t& page : request.*list) {
        const auto [entry, first] = moved.try_emplace(page, 0);
        if (first) {
          entry->second = to.take(random_);
          pairs.insert(pairs.end(), {page, entry->second});
        } else {
          to.share(entry->second);
        }
        page = entry->second;
      }
    }
    pool = std::move(to);
  };
  move_pool(main_, pages, &Request::pages, moves.main);
  move_pool(index_, index_pages, &Request::index_pages, moves.index);
  return moves;
}

}  // namespace msa::soak
