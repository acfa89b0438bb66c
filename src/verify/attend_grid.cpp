// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <string>

#include "verify/attend_problem.h"

/// \file
/// The grid of shapes, layouts and types. Dimensions that do not interact are rotated over the
/// cells instead of multiplied.

namespace msa::verify {
namespace {

struct Heads {
  std::int64_t q, kv;
};
constexpr Heads all_heads[] = {{64, 4}, {32, 2}, {16, 1}, {8, 1}, {4, 1},  {9, 3},
                               {12, 1}, {24, 2}, {4, 4},  {8, 4}, {20, 4}, {24, 4}};
constexpr DType kv_types[] = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};
constexpr DType q_types[] = {DType::bf16, DType::f16};
constexpr std::int64_t query_lens[] = {1, 2, 3, 4, 8, 16};

std::string heads_name(const Heads& h) {
  return std::to_string(h.q) + "/" + std::to_string(h.kv) + " heads";
}

std::string types_name(const AttendSpec& s) {
  return std::string("q ") + name(s.q) + ", kv " + name(s.kv) + ", " + name(s.layout);
}

/// Types, layout and selections by the number of the cell.
AttendSpec rotated(const Heads& heads, std::size_t cell) {
  AttendSpec s;
  s.hq = heads.q;
  s.hkv = heads.kv;
  s.kv = kv_types[cell % 4];
  s.q = q_types[(cell / 4) % 2];
  s.out = q_types[(cell / 3) % 2];
  s.layout = all_kv_layouts[cell % all_kv_layouts.size()];
  s.layers = s.layout >= KVLayout::BLHNC ? 2 : 1;
  s.layer = s.layers - 1;
  s.ids = cell % 3 == 1 ? Ids::messy : Ids::sorted;
  s.one_list = cell % 5 == 4;
  s.head_major_selection = cell % 7 == 3;
  s.seed = 100 + cell;
  s.page_seed = cell;
  return s;
}

void add(std::vector<Case>& cases, const char* group, const std::string& name,
         const AttendSpec& spec, bool slow = false) {
  cases.push_back({"attend", group, name, [spec](const Target& t) { return check_attend(t, spec); },
                   slow, false});
}

void add_decode(std::vector<Case>& cases) {
  const std::vector<std::int64_t> lengths[] = {
      {130, 257}, {129, 200, 384}, {1, 127, 128, 129, 2047, 2048, 2049, 131073}};
  const char* const names[] = {"130,257", "129,200,384", "1..131073"};
  std::size_t cell = 0;
  for (std::size_t h = 0; h < std::size(all_heads); ++h) {
    for (std::size_t l = 0; l < 3; ++l) {
      for (std::size_t i = 0; i < std::size(query_lens); ++i, ++cell) {
        // The long set costs most: all m at the shard of one KV head, the widest windows also at
        // the whole model's heads, elsewhere one small m a pair.
        const bool main_shard = all_heads[h].q == 16;
        const bool wide = all_heads[h].q == 64 && query_lens[i] >= 8;
        if (l == 2 && !main_shard && !wide && i != h % 4) continue;
        AttendSpec s = rotated(all_heads[h], cell);
        s.batch.m = query_lens[i];
        for (std::int64_t keys : lengths[l]) {
          s.batch.decodes.push_back({1, keys, s.batch.decodes.size() + 1});
        }
        const bool pad = cell % 2 == 1;
        if (pad) s.batch.decodes.insert(s.batch.decodes.end(), {{1, 0, 50}, {1, 0, 51}});
        add(cases, "decode",
            heads_name(all_heads[h]) + ", lens " + names[l] + ", m " + std::to_string(s.batch.m) +
                (pad ? ", 2 padding rows, " : ", ") + types_name(s),
            s);
      }
    }
  }
}

void add_prefill(std::vector<Case>& cases) {
  struct Shape {
    const char* name;
    std::vector<Request> requests;
  };
  const Shape shapes[] = {{"129/257 x2", prefills({129, 129}, {257, 257})},
                          {"65,129,257 of 129,257,385", prefills({65, 129, 257}, {129, 257, 385})},
                          {"300 at 131072-77", prefills({300}, {131072 - 77 + 300})}};
  std::size_t cell = 0;
  for (const Heads& heads : all_heads) {
    for (const Shape& shape : shapes) {
      ++cell;
      // 300 rows of a long context at three group sizes and at the whole model's heads.
      const bool large = shape.requests.size() == 1;
      if (large && heads.q != 64 && heads.q != 16 && heads.q != 9 && heads.q * heads.kv != 4) {
        continue;
      }
      AttendSpec s = rotated(heads, cell);
      s.batch.prefills = shape.requests;
      s.batch.padding_tokens = cell % 2 == 1 ? 2 : 0;
      s.invariant = cell % 2 == 0;
      add(cases, "prefill",
          heads_name(heads) + ", " + shape.name + (s.invariant ? ", invariant, " : ", ") +
              (s.batch.padding_tokens > 0 ? "2 padding rows, " : "") + types_name(s),
          s);
    }
  }
  AttendSpec mixed = rotated({16, 1}, 4);
  mixed.batch.m = 3;
  mixed.batch.decodes = requests({5, 300, 0, 2050});
  mixed.batch.prefills = prefills({0, 7, 1, 7, 130}, {0, 1007, 1, 1031, 700});
  mixed.batch.padding_tokens = 3;
  add(cases, "prefill", "decode, empty, short and chunked requests in one batch", mixed);
}

void add_types(std::vector<Case>& cases) {
  std::size_t cell = 0;
  for (KVLayout layout : all_kv_layouts) {
    for (DType kv : kv_types) {
      for (DType q : q_types) {
        AttendSpec s = rotated({8, 2}, cell++);
        s.kv = kv;
        s.q = q;
        s.out = q;
        s.layout = layout;
        s.layers = 3;
        s.layer = 1;
        s.one_list = false;
        s.batch.m = 2;
        s.batch.decodes = requests({129, 700});
        s.batch.prefills = prefills({35, 3}, {163, 300});
        add(cases, "types", types_name(s), s);
      }
    }
  }
  const std::pair<Form, const char*> forms[] = {{Form::halves, "halves of the packed view"},
                                                {Form::pools, "two pools, two orders"},
                                                {Form::interleaved, "K and V alternate in a page"}};
  for (const auto& [form, form_name] : forms) {
    for (DType kv : kv_types) {
      AttendSpec s = rotated({8, 4}, cell++);
      s.kv = kv;
      s.form = form;
      s.layers = 2;
      s.layer = 1;
      s.batch.m = 4;
      s.batch.decodes = requests({131, 520});
      s.batch.prefills = prefills({20}, {257});
      add(cases, "types", std::string("K and V as two views, ") + form_name + ", kv " + name(kv),
          s);
    }
  }
}

}  // namespace

void add_attend_grid(std::vector<Case>& cases) {
  add_decode(cases);
  add_prefill(cases);
  add_types(cases);
}

}  // namespace msa::verify
