// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <string>

#include "common/numeric.h"
#include "verify/index_problem.h"

/// \file
/// NaN, infinities, ties and extreme magnitudes in keys and queries that rows do see.

namespace msa::verify {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

void add(std::vector<Case>& cases, const std::string& name, const IndexSpec& spec) {
  cases.push_back(
      {"index_blocks", "values", name, [spec](const Target& t) { return check_index(t, spec); }});
}

IndexSpec base(DType k, std::int64_t m, bool reduce) {
  IndexSpec s;
  s.k = k;
  s.topk = 8;
  s.rule.reduce_heads = reduce;
  s.batch.m = m;
  s.batch.decodes = requests({100, 1000, 2571});
  s.batch.prefills = prefills({40}, {1800});
  s.values = IndexValues::integers;
  s.seed = 60;
  return s;
}

std::string suffix(const IndexSpec& s) {
  return std::string(", k ") + name(s.k) + (s.q == DType::f16 ? ", q f16" : "") + ", m " +
         std::to_string(s.batch.m) + (s.rule.reduce_heads ? ", heads reduced" : "");
}

/// One element of one key of each chosen block.
void add_nan_blocks(std::vector<Case>& cases, const IndexSpec& s) {
  for (int percent : {20, 83, 100}) {
    IndexSpec nan = s;
    nan.edit_keys = [percent, type = s.k](std::uint64_t content, std::int64_t block, void* keys) {
      Rng rng(seed_of({61, content, static_cast<std::uint64_t>(block)}));
      if (rng.chance(percent)) {
        store(type, keys, rng.below(std::int64_t{page_size} * head_dim), not_a_number);
      }
    };
    add(cases, "report 5: NaN in " + std::to_string(percent) + " % of the blocks" + suffix(s), nan);
  }
  IndexSpec all = s;
  all.edit_keys = [type = s.k](std::uint64_t, std::int64_t block, void* keys) {
    for (std::int64_t i = 0; block % 2 == 0 && i < page_size * head_dim; ++i) {
      store(type, keys, i, not_a_number);
    }
  };
  add(cases, "every second block NaN throughout" + suffix(s), all);
}

/// Scores of every kind: +inf, −inf, NaN and numbers.
void add_infinities(std::vector<Case>& cases, const IndexSpec& s) {
  IndexSpec mixed = s;
  mixed.edit_q = [type = s.q](std::uint64_t, std::int64_t, std::int64_t head, void* q) {
    store(type, q, 0, head % 2 == 0 ? 1.0 : -1.0);
  };
  mixed.edit_keys = [](std::uint64_t content, std::int64_t block, void* keys) {
    const std::int64_t kind = (block + static_cast<std::int64_t>(content)) % 5;
    const double values[] = {infinity, -infinity, not_a_number, 0, 1};
    for (std::int64_t j = 0; j < page_size; ++j) {
      if (kind < 3) store(DType::bf16, keys, j * head_dim, values[kind]);
    }
  };
  add(cases, "scores of +inf, -inf and NaN" + suffix(s), mixed);

  IndexSpec low = mixed;
  low.edit_keys = [](std::uint64_t, std::int64_t, void* keys) {
    for (std::int64_t j = 0; j < page_size; ++j) store(DType::bf16, keys, j * head_dim, -infinity);
  };
  add(cases, "visible blocks of score -inf are candidates" + suffix(s), low);

  IndexSpec products = s;  // 0 · inf where a query has a 0
  products.edit_keys = [](std::uint64_t content, std::int64_t block, void* keys) {
    Rng rng(seed_of({62, content, static_cast<std::uint64_t>(block)}));
    if (rng.chance(50)) {
      store(DType::bf16, keys, rng.below(std::int64_t{page_size} * head_dim), infinity);
    }
  };
  add(cases, "infinite keys against queries with zeros" + suffix(s), products);
}

void add_queries(std::vector<Case>& cases, const IndexSpec& s) {
  IndexSpec nan = s;
  nan.edit_q = [](std::uint64_t, std::int64_t position, std::int64_t head, void* q) {
    if ((position + head) % 3 == 0) store(DType::bf16, q, 77, not_a_number);
  };
  add(cases, "NaN queries spoil their own scores alone" + suffix(s), nan);
  IndexSpec zero = s;
  zero.edit_q = [](std::uint64_t, std::int64_t, std::int64_t, void* q) {
    for (std::int64_t i = 0; i < head_dim; ++i) store(DType::bf16, q, i, i % 2 == 0 ? 0.0 : -0.0);
  };
  add(cases, "scores of +0 and -0 are ties" + suffix(s), zero);
  IndexSpec equal = s;
  equal.values = IndexValues::equal;
  add(cases, "report 9: all scores equal" + suffix(s), equal);
  IndexSpec one_ulp = equal;
  one_ulp.edit_keys = [type = s.k](std::uint64_t, std::int64_t block, void* keys) {
    // 128 · 1 against 127 + 1.125: blocks that differ by the smallest step a key can make.
    if (block % 3 == 1) store(type, keys, 5, 1.125);
  };
  add(cases, "nearly equal scores" + suffix(s), one_ulp);
}

void add_magnitudes(std::vector<Case>& cases, const IndexSpec& s) {
  for (double gain : {0x1p50, 0x1p-50}) {
    if (s.k != DType::bf16) continue;
    IndexSpec far = s;
    far.values = IndexValues::normal;
    far.gain = gain;
    add(cases, std::string(gain > 1 ? "large" : "small") + " queries and keys" + suffix(s), far);
  }
}

}  // namespace

void add_index_values(std::vector<Case>& cases) {
  for (DType k : {DType::bf16, DType::e4m3}) {
    for (std::int64_t m : {1, 4}) {
      for (bool reduce : {false, true}) {
        const IndexSpec s = base(k, m, reduce);
        add_nan_blocks(cases, s);
        if (k == DType::bf16) {
          add_infinities(cases, s);
          IndexSpec f16 = s;
          f16.q = DType::f16;
          add_infinities(cases, f16);
        }
        add_queries(cases, s);
        add_magnitudes(cases, s);
      }
    }
  }
}

}  // namespace msa::verify
