// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "verify/attend_problem.h"

/// \file
/// The grid of shapes, layouts and types. Dimensions that do not interact are rotated over the
/// cells instead of multiplied: each on its own, or two of them would go together, and a fault that
/// needs another pair of them would never be met. tests/conformance looks for every pair.

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

/// What a cell draws for a dimension, by a hash of both.
std::size_t pick(std::uint64_t dimension, std::size_t cell, std::size_t n) {
  Rng rng(seed_of({110, dimension, cell}));
  return static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(n)));
}

/// Types, layout and selections of the i-th cell of a row of the grid: the cells of a row take one
/// layout and KV type after another, from where the row's number says.
AttendSpec rotated(const Heads& heads, std::size_t row, std::size_t i) {
  const std::size_t cell = 100 * row + i;
  AttendSpec s;
  s.hq = heads.q;
  s.hkv = heads.kv;
  s.kv = kv_types[(i + pick(0, row, 4)) % 4];
  s.q = q_types[pick(1, cell, 2)];
  s.out = q_types[pick(2, cell, 2)];
  s.layout = all_kv_layouts[(i + row + row / 6) % all_kv_layouts.size()];
  s.layers = s.layout >= KVLayout::BLHNC ? 2 : 1;
  s.layer = s.layers - 1;
  s.ids = pick(3, cell, 3) == 0 ? Ids::messy : Ids::sorted;
  s.one_list = pick(4, cell, 5) == 0;
  s.head_major_selection = pick(5, cell, 5) == 0;
  s.seed = 1000 + cell;
  s.page_seed = cell;
  return s;
}

/// Of long contexts' blocks, one in 32 and each row's own: making keys is what long requests
/// cost. Ascending lists stay ascending and distinct.
void thin_out(AttendSpec& s) {
  const bool ascending = s.ids == Ids::sorted;
  s.edit_ids = [ascending](std::uint64_t, std::int64_t position, std::int64_t,
                           std::vector<std::int32_t>& ids) {
    const std::int64_t own = position < 0 ? -1 : position / page_size;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= own) continue;
      ids[i] -= ids[i] % 32;
      if (ascending && i > 0) ids[i] = std::max(ids[i], ids[i - 1] + 1);
    }
  };
}

std::string padding_name(bool pad) { return pad ? ", 2 padding rows, " : ", 0 padding rows, "; }

void add(std::vector<Case>& cases, const char* group, const std::string& name,
         const AttendSpec& spec, bool slow = false) {
  cases.push_back({"attend", group, name, [spec](const Target& t) { return check_attend(t, spec); },
                   slow, false});
}

void add_decode(std::vector<Case>& cases) {
  const std::vector<std::int64_t> lengths[] = {
      {130, 257}, {129, 200, 384}, {1, 127, 128, 129, 2047, 2048, 2049, 131073}};
  const char* const names[] = {"130,257", "129,200,384", "1..131073"};
  for (std::size_t h = 0; h < std::size(all_heads); ++h) {
    for (std::size_t l = 0; l < 3; ++l) {
      for (std::size_t i = 0; i < std::size(query_lens); ++i) {
        const std::size_t row = 3 * h + l;
        AttendSpec s = rotated(all_heads[h], row, i);
        s.batch.m = query_lens[i];
        for (std::int64_t keys : lengths[l]) {
          s.batch.decodes.push_back({1, keys, s.batch.decodes.size() + 1});
        }
        if (l == 2 && s.hq != 16) thin_out(s);
        const bool pad = pick(6, 100 * row + i, 2) == 1;
        if (pad) s.batch.decodes.insert(s.batch.decodes.end(), {{1, 0, 50}, {1, 0, 51}});
        add(cases, "decode",
            heads_name(all_heads[h]) + ", lens " + names[l] + ", m " + std::to_string(s.batch.m) +
                padding_name(pad) + types_name(s),
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
  for (std::size_t h = 0; h < std::size(all_heads); ++h) {
    for (std::size_t i = 0; i < std::size(shapes); ++i) {
      const Heads& heads = all_heads[h];
      const Shape& shape = shapes[i];
      const std::size_t row = 40 + h;
      AttendSpec s = rotated(heads, row, i);
      // Drawn a row, the types would not all meet all layouts in so few cells.
      s.kv = kv_types[(i + h / 2 * 3 + h / 6 * 2) % std::size(kv_types)];
      if (shape.requests.size() == 1 && s.hq != 16) thin_out(s);
      s.batch.prefills = shape.requests;
      const bool pad = pick(6, 100 * row + i, 2) == 1;
      s.batch.padding_tokens = pad ? 2 : 0;
      s.invariant = pick(7, 100 * row + i, 2) == 1;
      add(cases, "prefill",
          heads_name(heads) + ", " + shape.name + (s.invariant ? ", invariant" : ", free") +
              padding_name(pad) + types_name(s),
          s);
    }
  }
  AttendSpec mixed = rotated({16, 1}, 60, 0);
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
        AttendSpec s = rotated({8, 2}, 70, cell++);
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
      AttendSpec s = rotated({8, 4}, 70, cell++);
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
