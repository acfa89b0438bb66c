// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <string>

#include "verify/index_problem.h"

/// \file
/// The indexer over its shapes, types and rules.

namespace msa::verify {
namespace {

void add(std::vector<Case>& cases, const std::string& name, const IndexSpec& spec) {
  cases.push_back(
      {"index_blocks", "grid", name, [spec](const Target& t) { return check_index(t, spec); }});
}

std::string text(std::int64_t x) { return std::to_string(x); }

/// Every count of visible blocks that a list of 16 makes special, full and partly filled.
void add_counts(std::vector<Case>& cases) {
  for (std::int64_t topk : {1, 6, 8, 16, 32, 64}) {
    for (bool reduce : {false, true}) {
      IndexSpec s;
      s.topk = topk;
      s.rule.reduce_heads = reduce;
      s.values = IndexValues::integers;
      const std::int64_t partial = topk % 5;
      for (std::int64_t blocks : {0, 1, 2, 15, 16, 17, 31, 32, 33}) {
        const std::int64_t keys = blocks == 0 ? 0 : blocks * page_size - partial * 25;
        s.batch.decodes.push_back({1, keys, static_cast<std::uint64_t>(blocks + 1)});
      }
      s.seed = 30 + static_cast<std::uint64_t>(topk);
      add(cases,
          "0 to 33 blocks, topk " + text(topk) + (reduce ? ", heads reduced" : ", a list a head"),
          s);
    }
  }
  for (std::int64_t topk : {1, 6, 8, 16, 32, 64}) {
    for (bool reduce : {false, true}) {
      IndexSpec s;
      s.topk = topk;
      s.rule.reduce_heads = reduce;
      s.batch.decodes = {{1, 1024 * page_size, 7}};
      s.values = IndexValues::integers;
      add(cases,
          "1024 blocks, topk " + text(topk) + (reduce ? ", heads reduced" : ", a list a head"), s);
    }
  }
  for (DType k : {DType::bf16, DType::e4m3}) {
    IndexSpec s;
    s.k = k;
    s.batch.decodes = {{1, 1024 * page_size - 5, 7}};
    s.values = IndexValues::integers;
    add(cases, std::string("1024 blocks, decode, k ") + name(k), s);
    s.batch.prefills = {{5, 1024 * page_size - 100, 7}};
    s.batch.decodes.clear();
    s.values = IndexValues::normal;
    add(cases, std::string("1024 blocks, prefill, k ") + name(k), s);
  }
}

/// Draft lengths and head counts; the drafts cross a block's edge.
void add_decodes(std::vector<Case>& cases) {
  for (std::int64_t m : {1, 2, 3, 4, 8, 16}) {
    for (std::int64_t heads : {1, 2, 3, 4, 16}) {
      IndexSpec s;
      s.heads = heads;
      s.topk = 8;
      s.batch.m = m;
      s.batch.decodes = requests({130, 257, 1, 2049, 3000, 0, 5});
      s.k = m % 2 == 0 ? DType::bf16 : DType::e4m3;
      s.q = heads % 2 == 0 ? DType::bf16 : DType::f16;
      s.seed = static_cast<std::uint64_t>(100 * m + heads);
      add(cases, "decode, m " + text(m) + ", " + text(heads) + " heads", s);
      s.values = IndexValues::integers;
      s.rule.reduce_heads = true;
      add(cases, "decode of whole numbers, m " + text(m) + ", " + text(heads) + " heads reduced",
          s);
    }
  }
}

void add_prefills(std::vector<Case>& cases) {
  for (std::int64_t heads : {1, 2, 3, 4, 16}) {
    IndexSpec s;
    s.heads = heads;
    s.topk = 8;
    s.batch.prefills = prefills({129, 257, 1, 0, 65}, {129, 257, 3000, 700, 2049});
    s.batch.padding_tokens = 2;
    s.seed = static_cast<std::uint64_t>(heads);
    add(cases, "prefill, " + text(heads) + " heads", s);
    s.values = IndexValues::integers;
    s.batch.m = 3;
    s.batch.decodes = requests({0, 1, 700});
    add(cases, "decode and prefill of whole numbers, " + text(heads) + " heads", s);
  }
}

void add_types(std::vector<Case>& cases) {
  for (DType q : {DType::bf16, DType::f16, DType::e4m3}) {
    for (DType k : {DType::bf16, DType::e4m3}) {
      for (bool exact : {false, true}) {
        for (std::int64_t m : {1, 5}) {
          IndexSpec s;
          s.q = q;
          s.k = k;
          s.exact = exact;
          s.topk = 6;
          s.batch.m = m;
          s.batch.decodes = requests({1300, 129});
          s.batch.prefills = prefills({33}, {1500});
          s.seed = 40;
          add(cases,
              std::string("q ") + name(q) + ", k " + name(k) + (exact ? ", exact" : "") + ", m " +
                  text(m),
              s);
        }
      }
    }
  }
}

/// As many products side by side as there are: drafts of many heads, tiles of one head and of 16.
void add_wide(std::vector<Case>& cases) {
  struct Types {
    DType q, k;
    bool exact;
  };
  for (const Types& types : {Types{DType::bf16, DType::bf16, false},
                             {DType::f16, DType::bf16, false},
                             {DType::e4m3, DType::e4m3, false},
                             {DType::e4m3, DType::e4m3, true},
                             {DType::bf16, DType::e4m3, false}}) {
    for (const auto& [heads, m] : {std::pair{1, 1}, {16, 8}, {16, 16}}) {
      for (bool garbage : {false, true}) {
        IndexSpec s;
        s.heads = heads;
        s.q = types.q;
        s.k = types.k;
        s.exact = types.exact;
        s.topk = 8;
        s.batch.m = m;
        s.batch.decodes = requests({1300, 129, 0, 16, 2049});
        s.batch.prefills = prefills({129, 257, 1, 0, 65}, {129, 257, 3000, 700, 2049});
        s.garbage_cells = garbage;
        s.seed = 60 + static_cast<std::uint64_t>(m);
        add(cases,
            std::string("wide, q ") + name(s.q) + ", k " + name(s.k) +
                (s.exact ? ", exact, " : ", ") + text(heads) + " heads, m " + text(m) +
                (garbage ? ", garbage cells" : ""),
            s);
      }
    }
  }
}

/// More prefill requests than a warp has lanes, in one window of the workspace and in many.
void add_many_prefills(std::vector<Case>& cases) {
  for (std::int64_t count : {32, 33, 200}) {
    for (std::size_t cap : {default_workspace_cap, std::size_t{16} << 10}) {
      IndexSpec s;
      s.topk = 6;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t tokens = i % 5 == 3 ? 0 : 1 + i % 7;
        s.batch.prefills.push_back({tokens, tokens + 200 * (i % 9), static_cast<std::uint64_t>(i)});
      }
      s.workspace_cap = cap;
      add(cases, text(count) + " prefill requests" + (cap < default_workspace_cap ? ", 16 KB" : ""),
          s);
    }
  }
}

/// Forced blocks at either end, and more of them than a list holds.
void add_forced(std::vector<Case>& cases) {
  const auto forced = [&](std::int64_t init, std::int64_t local, std::int64_t topk, bool reduce) {
    IndexSpec s;
    s.topk = topk;
    s.rule = {init, local, reduce};
    s.values = IndexValues::integers;
    s.batch.m = 2;
    s.batch.decodes = requests({1, 129, 257, 900, 2600});
    s.batch.prefills = prefills({130}, {1500});
    s.seed = 50;
    add(cases,
        text(init) + " first and " + text(local) + " last blocks forced, topk " + text(topk) +
            (reduce ? ", heads reduced" : ""),
        s);
  };
  for (std::int64_t init : {0, 1, 2}) {
    for (std::int64_t local : {0, 1, 2}) {
      forced(init, local, 6, false);
      forced(init, local, 6, true);
    }
  }
  forced(5, 0, 1, false);
  forced(5, 20, 8, false);
  forced(5, 3, 6, true);
  forced(2, 6, 6, false);
  forced(100, 0, 6, false);
  forced(2147483647, 2147483647, 16, false);
}

}  // namespace

void add_index_grid(std::vector<Case>& cases) {
  add_counts(cases);
  add_decodes(cases);
  add_prefills(cases);
  add_types(cases);
  add_wide(cases);
  add_many_prefills(cases);
  add_forced(cases);
}

}  // namespace msa::verify
