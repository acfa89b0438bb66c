// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>

#include "verify/attend_problem.h"

/// \file
/// Which keys count: kinds of selections, tables, causality, group sizes and topk.

namespace msa::verify {
namespace {

void add(std::vector<Case>& cases, const std::string& name, const AttendSpec& spec) {
  cases.push_back({"attend", "selection", name,
                   [spec](const Target& t) { return check_attend(t, spec); }, false, false});
}

AttendSpec mixed_batch(std::uint64_t seed) {
  AttendSpec s;
  s.hq = 8;
  s.hkv = 2;
  s.batch.m = 3;
  s.batch.decodes = requests({2, 128, 130, 900, 3000});
  s.batch.prefills = prefills({24, 9}, {1000, 9});
  s.seed = seed;
  return s;
}

/// The ascending list of distinct valid ids, then −1.
void canonical(std::vector<std::int32_t>& ids, std::int64_t visible) {
  std::set<std::int32_t> valid;
  for (std::int32_t id : ids) {
    if (id >= 0 && id * std::int64_t{page_size} < visible) valid.insert(id);
  }
  std::fill(ids.begin(), ids.end(), -1);
  std::copy(valid.begin(), valid.end(), ids.begin());
}

/// Whatever the order, holes and repeats: the bits are those of the canonical list.
Outcome canonical_bits(const Target& target, Ids ids, std::int64_t m) {
  AttendSpec messy = mixed_batch(31);
  messy.ids = ids;
  messy.batch.m = m;
  AttendSpec clean = messy;
  clean.edit_ids = [](std::uint64_t, std::int64_t position, std::int64_t,
                      std::vector<std::int32_t>& list) { canonical(list, position + 1); };
  return check_same_bits(target, messy, clean, "messy against canonical lists");
}

void add_styles(std::vector<Case>& cases) {
  struct Style {
    Ids ids;
    const char* name;
  };
  const Style styles[] = {{Ids::messy, "unsorted, holes, repeats, garbage and ids past the edge"},
                          {Ids::no_own, "own block missing"},
                          {Ids::disjoint, "disjoint rows in one request"},
                          {Ids::block0, "every row chooses block 0"},
                          {Ids::late, "valid ids only in the last places"},
                          {Ids::beyond, "only ids past the causal edge: empty rows"},
                          {Ids::none, "no ids: empty rows"}};
  for (const Style& style : styles) {
    for (DType kv : {DType::bf16, DType::e4m3}) {
      AttendSpec s = mixed_batch(30);
      s.ids = style.ids;
      s.kv = kv;
      add(cases, std::string(style.name) + ", kv " + name(kv), s);
    }
  }
  for (Ids ids : {Ids::messy, Ids::late}) {
    for (std::int64_t m : {1, 4, 16}) {
      cases.push_back({"attend", "selection",
                       "bits of the canonical list, " +
                           std::string(ids == Ids::messy ? "messy" : "late") + ", m " +
                           std::to_string(m),
                       [=](const Target& t) { return canonical_bits(t, ids, m); }, false, false});
    }
  }
}

void add_shapes(std::vector<Case>& cases) {
  for (std::int64_t g = 1; g <= max_group; ++g) {
    AttendSpec s = mixed_batch(40 + static_cast<std::uint64_t>(g));
    s.hq = 2 * g;
    s.kv = g % 2 == 0 ? DType::bf16 : DType::f16;
    s.batch.decodes = requests({130, 700});
    add(cases, "G " + std::to_string(g), s);
  }
  for (std::int64_t topk : {1, 2, 6, 8, 17, 32, 64}) {
    AttendSpec s = mixed_batch(60 + static_cast<std::uint64_t>(topk));
    s.topk = topk;
    s.batch.decodes = requests({100, 3000, 9000});
    add(cases, "topk " + std::to_string(topk), s);
  }
  for (std::int64_t m = 1; m <= max_decode_query_len; ++m) {
    AttendSpec s = mixed_batch(80 + static_cast<std::uint64_t>(m));
    s.batch.m = m;
    s.batch.decodes = requests({m / 2, m, 128 + m / 2, 1000});
    s.kv = m % 3 == 0 ? DType::e5m2 : DType::bf16;
    add(cases, "m " + std::to_string(m) + " across a page edge, and longer than its context", s);
  }
  AttendSpec one = mixed_batch(90);
  one.hq = 16;
  one.hkv = 4;
  one.one_list = true;
  one.ids = Ids::messy;
  add(cases, "one list for four KV heads", one);
}

void add_tables(std::vector<Case>& cases) {
  for (DType kv : {DType::bf16, DType::f16, DType::e4m3}) {
    AttendSpec s = mixed_batch(95);
    s.garbage_cells = true;
    s.kv = kv;
    add(cases, std::string("needed table cells hold garbage: not selected, kv ") + name(kv), s);
  }
  AttendSpec shared = mixed_batch(96);
  shared.batch.decodes = {{1, 600, 7}, {1, 900, 7}, {1, 128, 7}};
  shared.batch.prefills = {{20, 700, 7}};
  add(cases, "requests of one prefix share physical pages", shared);
}

void add_full(std::vector<Case>& cases) {
  for (DType kv : {DType::bf16, DType::f16, DType::e5m2}) {
    AttendSpec s = mixed_batch(97);
    s.causal = false;
    s.kv = kv;
    s.batch.decodes = requests({2, 130, 0, 700});
    s.batch.padding_tokens = 2;
    add(cases, std::string("causal off, kv ") + name(kv), s);
    s.ids = Ids::messy;
    add(cases, std::string("causal off, messy ids, kv ") + name(kv), s);
  }
  AttendSpec quiet = mixed_batch(98);
  quiet.with_lse = false;
  add(cases, "no LSE asked for", quiet);
}

}  // namespace

void add_attend_selection(std::vector<Case>& cases) {
  add_styles(cases);
  add_shapes(cases);
  add_tables(cases);
  add_full(cases);
}

}  // namespace msa::verify
