// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cli/soak/lane.h"

namespace msa::soak {
namespace {

/// Of `choices`, one with a probability in proportion to its weight.
template <class Choice, std::size_t n>
const Choice& draw(SplitMix64& random, const Choice (&choices)[n]) {
  std::int64_t sum = 0;
  for (const Choice& choice : choices) sum += choice.weight;
  std::int64_t at = random.below(sum);
  for (const Choice& choice : choices) {
    if (at < choice.weight) return choice;
    at -= choice.weight;
  }
  return choices[0];
}

struct Heads {
  std::int64_t q, kv, weight;
};
// The shards of MiniMax-M3, small ones often, since a row of theirs is checked in a tenth of the
// time; and groups of other sizes.
constexpr Heads heads[] = {{64, 4, 4}, {32, 2, 6}, {16, 1, 16}, {8, 1, 30}, {4, 1, 24},
                           {6, 2, 8},  {3, 1, 6},  {24, 2, 3},  {2, 2, 3}};

struct Length {
  std::int64_t keys, weight;
};
// From 17 blocks on, 16 are a choice; longer ones take the paths of split and chunked work.
constexpr Length lengths[] = {{300, 40}, {700, 40}, {2600, 15}, {9000, 4}, {40000, 1}};

struct Number {
  std::int64_t value, weight;
};
constexpr Number topks[] = {{16, 50}, {1, 5}, {2, 15}, {4, 15}, {7, 5}, {33, 5}, {64, 5}};
constexpr Number windows[] = {{1, 50}, {2, 15}, {3, 5}, {4, 15}, {8, 10}, {16, 5}};

}  // namespace

Episode draw_episode(SplitMix64& random) {
  constexpr DType types[] = {DType::bf16, DType::e4m3, DType::f16, DType::e5m2};
  Episode e;
  const Heads& h = draw(random, heads);
  e.shape = {h.q, h.kv, h.kv};
  e.kv_type = types[std::min(random.below(5), random.below(4))];
  e.index_type = random.chance(500) ? DType::bf16 : DType::e4m3;
  e.layout = all_kv_layouts[static_cast<std::size_t>(random.below(6))];
  e.topk = draw(random, topks).value;
  e.device_scales = random.chance(500);
  e.invariant = random.chance(300);
  TrafficConfig& t = e.traffic;
  t.m = draw(random, windows).value;
  t.max_keys = draw(random, lengths).keys + random.below(128);
  t.max_batch = 1 + random.below(t.max_keys > 1000 ? 8 : 40);
  t.chunk = 1 + random.below(random.chance(100) ? 600 : 160);
  // Too few for everybody, so that some are evicted; enough for the longest.
  const std::int64_t longest = (t.max_keys + page_size - 1) / page_size;
  t.pages = longest + random.below(t.max_batch * (longest + 1) / 2 + 1);
  t.index_pages = t.pages + random.below(4);
  e.steps = 10 + random.below(90);
  return e;
}

std::string text_of(const Episode& e) {
  return fmt::format(
      "{}/{} heads, {} {}{}, index {}, topk {}, m {}, at most {} keys, {} requests, {} pages{}",
      e.shape.q_heads, e.shape.kv_heads, name(e.kv_type), name(e.layout),
      e.device_scales ? ", scales on the device" : "", name(e.index_type), e.topk, e.traffic.m,
      e.traffic.max_keys, e.traffic.max_batch, e.traffic.pages, e.invariant ? ", invariant" : "");
}

}  // namespace msa::soak
