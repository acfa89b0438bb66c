// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "msa/kv_cache.h"
#include "verify/inputs.h"
#include "verify/verify.h"

/// \file
/// What the random problems of every operator are drawn from.

namespace msa::verify::properties {

/// A CPU target of this machine, each instruction set in its turn, so that the cases of a property
/// are spread over all of them. A case that fails is shrunk on the one that it failed on.
inline const Target& target(std::uint64_t turn) {
  static const std::vector<Target> all = [] {
    std::vector<Target> t = targets();
    std::erase_if(t, [](const Target& x) { return x.backend != "cpu"; });
    return t;
  }();
  const Target& chosen = all[turn % all.size()];
  chosen.activate();
  return chosen;
}

template <class T>
T one_of(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

/// low to high, both included, whatever RapidCheck's size: shapes are small anyway.
inline std::int64_t in(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}

inline bool chance(std::int64_t one_in) { return in(1, one_in) == one_in; }

inline KVLayout any_layout() {
  return *rc::gen::elementOf(std::vector<KVLayout>(all_kv_layouts.begin(), all_kv_layouts.end()));
}

/// Lengths near block edges are where faults live.
inline std::int64_t length(std::int64_t most_blocks) {
  const std::int64_t near = in(-2, 2) * (chance(2) ? 31 : 1);
  return std::max<std::int64_t>(0, in(0, most_blocks) * 128 + near);
}

inline BatchSpec any_batch(std::int64_t most_blocks) {
  BatchSpec b;
  b.m = chance(2) ? in(1, 4) : in(1, max_decode_query_len);
  std::uint64_t content = 1;
  for (std::int64_t i = in(0, 3); i > 0; --i) {
    b.decodes.push_back({b.m, length(most_blocks), content++});
  }
  for (std::int64_t i = in(0, 2); i > 0; --i) {
    // Some longer than a tile of 64 tokens that share a union of blocks.
    const std::int64_t query = chance(3) ? in(60, 200) : in(0, 7);
    b.prefills.push_back({query, query + length(most_blocks), content++});
  }
  b.padding_tokens = in(0, 2);
  b.spare_columns = in(-2, 4);  // below 0: too narrow for the longest requests
  b.table_pad = in(0, 3);
  b.bound_slack = in(0, 300);
  return b;
}

/// Another table that holds the same blocks.
inline std::int64_t other_spare_columns(const BatchSpec& b) {
  return b.spare_columns < 0 ? b.spare_columns : in(0, 9);
}

/// Which instruction set a case runs on.
inline std::uint64_t any_turn() { return static_cast<std::uint64_t>(in(0, 5)); }

inline std::uint64_t any_seed() { return static_cast<std::uint64_t>(in(1, 1 << 20)); }

}  // namespace msa::verify::properties
