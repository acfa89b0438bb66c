// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "common/numeric.h"
#include "msa/device.h"
#include "msa/error.h"
#include "verify/attend_problem.h"
#include "verify/concurrent.h"

/// \file
/// The bitwise promises of the contract's section 5, one by one.

namespace msa::verify {
namespace {

constexpr DType kv_types[] = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};

void add(std::vector<Case>& cases, const std::string& name,
         std::function<Outcome(const Target&)> run, bool cpu_only = false) {
  cases.push_back({"attend", "bits", name, std::move(run), false, cpu_only});
}

AttendSpec base(DType kv, std::int64_t m, bool invariant) {
  AttendSpec s;
  s.hq = 16;
  s.hkv = 2;
  s.kv = kv;
  s.batch.m = m;
  s.batch.decodes = requests({2, 129, 900});
  s.batch.prefills = prefills({35, 5}, {600, 1100});
  s.invariant = invariant;
  s.seed = 20;
  return s;
}

std::string suffix(const AttendSpec& s) {
  return std::string(", kv ") + name(s.kv) + ", m " + std::to_string(s.batch.m) +
         (s.invariant ? ", invariant" : "") + (s.edit_tile ? ", NaN and Inf in the cache" : "");
}

/// One element of a tile of KV head 0, visible to some rows of the content's request.
struct Fault {
  std::uint64_t content;
  std::int64_t block, token, element;  // element < head_dim: of K
  double value;
};
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr Fault faults[] = {{2, 0, 7, 5, not_a_number},
                            {3, 4, 100, head_dim + 31, not_a_number},
                            {3, 2, 50, head_dim + 90, infinity},
                            {1001, 4, 70, 9, not_a_number},
                            {1002, 8, 74, head_dim + 64, not_a_number}};

/// The base's requests with faults among their keys: content 1 has none.
AttendSpec with_faults(AttendSpec s) {
  s.edit_tile = [](std::uint64_t content, std::int64_t block, std::int64_t head,
                   const Elements& tile) {
    for (const Fault& f : faults) {
      if (f.content == content && f.block == block && head == 0) {
        tile.set(f.token * 2 * head_dim + f.element, f.value);
      }
    }
  };
  return s;
}

/// What the cases with faults rest on: rows that see a NaN have one, in query heads of KV head 0
/// alone; the request without faults has none.
Outcome check_faults(const Target& target, const AttendSpec& spec) {
  Judge judge;
  AttendProblem problem(target, spec, Poison::nan);
  const AttendOutput output = problem.run(judge);
  const std::int64_t head = spec.hq / spec.hkv * head_dim;  // elements of a KV head's query heads
  const auto has_nan = [&](std::int64_t t, std::int64_t kv_head) {
    for (std::int64_t i = 0; i < head; ++i) {
      const std::int64_t at = t * spec.hq * head_dim + kv_head * head + i;
      if (std::isnan(load(spec.out, output.out.data(), at))) return true;
    }
    return false;
  };
  std::int64_t sick = 0;
  for (std::int64_t t = 0; t < problem.tokens(); ++t) {
    const std::uint64_t content = problem.rows()[t].content;
    const bool sees = std::any_of(std::begin(faults), std::end(faults), [&](const Fault& f) {
      return f.content == content && std::isnan(f.value) &&
             f.block * page_size + f.token < problem.visible(t);
    });
    if (sees) ++sick;
    const std::string row = "row " + std::to_string(t);
    judge.require(!sees || has_nan(t, 0), row + " sees a NaN and has none");
    judge.require(content != 1 || !has_nan(t, 0), row + " of a healthy request has a NaN");
    judge.require(!has_nan(t, 1), row + " has a NaN of another KV head");
  }
  judge.require(sick > 0 && sick < problem.tokens(), "some rows should see a NaN, and some none");
  return judge.outcome();
}

/// Calls of one problem, its workspace and outputs left as the last call made them.
Outcome check_repeats(const Target& target, const AttendSpec& spec, int calls) {
  Judge judge;
  AttendProblem problem(target, spec, Poison::nan);
  const AttendOutput first = problem.run(judge);
  for (int i = 1; i < calls; ++i) {
    const AttendOutput again = problem.run(judge);
    same_rows(judge, problem, first, problem, again, "call " + std::to_string(i));
  }
  return judge.outcome();
}

/// Where things lie must not matter, in either mode.
void add_placement(std::vector<Case>& cases, const AttendSpec& s) {
  const auto same = [&](const std::string& what, const std::function<void(AttendSpec&)>& change) {
    AttendSpec other = s;
    change(other);
    add(cases, what + suffix(s),
        [s, other, what](const Target& t) { return check_same_bits(t, s, other, what); });
  };
  add(cases, "same call, ten times" + suffix(s),
      [s](const Target& t) { return check_repeats(t, s, 10); });
  same("a permuted page table", [](AttendSpec& o) { o.page_seed = 99; });
  same("report 72: LBHNC against LBNHC", [](AttendSpec& o) { o.layout = KVLayout::LBNHC; });
  same("a larger pool", [](AttendSpec& o) { o.spare_pages = 40; });
  same("a wider table", [](AttendSpec& o) {
    o.batch.spare_columns = 300;
    o.batch.table_pad = 77;
  });
  same("larger bounds", [](AttendSpec& o) { o.batch.bound_slack = 100000; });
  same("a head-major selection", [](AttendSpec& o) { o.head_major_selection = true; });
  same("more rows than tokens", [](AttendSpec& o) { o.spare_rows = 50; });
}

/// A batch of one decode request, and `others` more of skewed lengths around it. They have few
/// contents: the batch must be large, not its cache.
AttendSpec among(const AttendSpec& one, std::int64_t others) {
  AttendSpec batch = one;
  batch.batch.decodes.clear();
  for (std::int64_t i = 0; i < others; ++i) {
    const auto content = static_cast<std::uint64_t>(100 + i % 5);
    batch.batch.decodes.push_back({1, i % 5 == 4 ? 2900 : 1 + 60 * (i % 5), content});
  }
  batch.batch.decodes.insert(batch.batch.decodes.begin() + others / 2, one.batch.decodes.front());
  return batch;
}

/// However many CTAs share a request, which is a matter of the batch: from 16 for a lone one on a
/// device of 264 resident CTAs down to one that serves two requests.
void add_division(std::vector<Case>& cases, std::int64_t hq, DType kv, std::int64_t m) {
  AttendSpec s = base(kv, m, false);
  s.hq = hq;
  s.hkv = 1;
  s.batch.prefills.clear();
  s.batch.decodes = requests({2041}, 5);
  for (std::int64_t others : {15, 31, 63, 127, 299}) {
    const AttendSpec batch = among(s, others);
    add(cases,
        "a decode row of " + std::to_string(hq) + "/1 heads alone and in a batch of " +
            std::to_string(others + 1) + suffix(s),
        [s, batch](const Target& t) { return check_same_bits(t, s, batch, "division"); });
  }
}

/// Rows of requests in batches of other sizes, orders and neighbours.
void add_composition(std::vector<Case>& cases, DType kv, std::int64_t m) {
  AttendSpec s = base(kv, m, true);
  s.batch.prefills.clear();
  s.batch.decodes = requests({777}, 5);
  for (std::int64_t others : {1, 7, 63, 255}) {
    if (others > 7 && m > 4) continue;
    AttendSpec batch = among(s, others);
    batch.batch.prefills = prefills({9}, {200});
    add(cases,
        "report 86: a decode row alone and in a batch of " + std::to_string(others + 1) + ", kv " +
            name(kv) + ", m " + std::to_string(m),
        [s, batch](const Target& t) { return check_same_bits(t, s, batch, "batch composition"); });
  }
  AttendSpec forward = base(kv, m, true), backward = forward;
  std::reverse(backward.batch.decodes.begin(), backward.batch.decodes.end());
  std::reverse(backward.batch.prefills.begin(), backward.batch.prefills.end());
  backward.batch.padding_tokens = 3;
  add(cases, "another order of requests" + suffix(forward), [forward, backward](const Target& t) {
    return check_same_bits(t, forward, backward, "order");
  });
  AttendSpec decode = base(kv, m, false), other = decode;
  other.batch.prefills = prefills({300}, {300}, 5000);
  add(cases, "decode rows do not feel the prefill part" + suffix(decode),
      [decode, other](const Target& t) {
        AttendSpec a = decode, b = other;
        a.batch.prefills.clear();
        return check_same_bits(t, a, b, "decode");
      });
}

/// Every third block of the cache has keys that outweigh all others, and values near the type's
/// largest: rows that chose none of them do not feel that their neighbours did.
AttendSpec with_huge_blocks(AttendSpec s) {
  const double value = s.kv == DType::bf16 ? 1e30 : s.kv == DType::e4m3 ? 448 : 57344;
  s.edit_tile = [value](std::uint64_t, std::int64_t block, std::int64_t, const Elements& tile) {
    if (block % 3 != 1) return;
    for (std::int64_t i = 0; i < page_size * 2 * head_dim; ++i) {
      const bool key = i % (2 * head_dim) < head_dim;
      const double size = key ? 400 : value;
      tile.set(i, i % 7 < 3 ? -size : size);
    }
  };
  return s;
}

/// invariant = true: a prefill row depends on itself alone.
void add_invariant(std::vector<Case>& cases, DType kv, std::int64_t hq, std::int64_t hkv) {
  AttendSpec whole = base(kv, 1, true);
  whole.hq = hq;
  whole.hkv = hkv;
  whole.batch.decodes.clear();
  whole.batch.prefills = {{130, 700, 3}};
  const std::string type = std::string(", kv ") + name(kv) + ", " + std::to_string(hq) + "/" +
                           std::to_string(hkv) + " heads";
  struct Chunk {
    const char* name;
    std::vector<Request> requests;
  };
  const Chunk chunks[] = {{"first half", {{60, 630, 3}}},
                          {"odd chunk", {{61, 651, 3}}},
                          {"one row", {{1, 641, 3}}},
                          {"in a batch", {{7, 7, 1}, {70, 690, 3}, {65, 300, 2}}}};
  for (const Chunk& chunk : chunks) {
    AttendSpec part = whole;
    part.batch.prefills = chunk.requests;
    add(cases, std::string("invariant prefill, ") + chunk.name + type,
        [whole, part](const Target& t) { return check_same_bits(t, whole, part, "chunk"); });
    const AttendSpec huge = with_huge_blocks(whole), huge_part = with_huge_blocks(part);
    add(cases, std::string("invariant prefill beside huge keys and values, ") + chunk.name + type,
        [huge, huge_part](const Target& t) {
          return check_same_bits(t, huge, huge_part, "chunk beside huge keys and values");
        });
  }
}

/// The same bits for every workspace cap that the backend accepts.
Outcome check_caps(const Target& target, const AttendSpec& spec) {
  Judge judge;
  AttendProblem full(target, spec, Poison::nan);
  const AttendOutput want = full.run(judge);
  for (std::size_t cap : {std::size_t{64} << 20, std::size_t{1} << 20, std::size_t{1} << 16,
                          std::size_t{1} << 12, std::size_t{0}}) {
    AttendSpec capped = spec;
    capped.workspace_cap = cap;
    const std::string what = "cap of " + std::to_string(cap) + " bytes";
    try {
      AttendProblem problem(target, capped, Poison::huge);
      same_rows(judge, full, want, problem, problem.run(judge), what);
    } catch (const Error& e) {  // a small cap may be refused, in the contract's words
      judge.require(e.code() == ErrorCode::workspace && cap < (std::size_t{64} << 20),
                    what + ": " + e.what());
    }
  }
  return judge.outcome();
}

/// A host program's pool in the place of the built-in one, for one scope.
class HookScope {
 public:
  HookScope(ParallelFor hook, void* context) { set_parallel_for(hook, context); }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  ~HookScope() { set_parallel_for(nullptr, nullptr); }
};

using Body = void (*)(void*, std::int64_t);

void in_order(void*, std::int64_t tasks, Body body, void* context) {
  for (std::int64_t i = 0; i < tasks; ++i) body(context, i);
}

void backwards(void*, std::int64_t tasks, Body body, void* context) {
  for (std::int64_t i = tasks; i-- > 0;) body(context, i);
}

/// `*threads` threads, each with every n-th task.
void interleaved(void* threads, std::int64_t tasks, Body body, void* context) {
  const int n = *static_cast<int*>(threads);
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(n));
  for (int w = 0; w < n; ++w) {
    workers.emplace_back([=] {
      for (std::int64_t i = w; i < tasks; i += n) body(context, i);
    });
  }
  for (std::thread& worker : workers) worker.join();
}

Outcome check_threads(const Target& target, const AttendSpec& spec) {
  Judge judge;
  AttendProblem problem(target, spec, Poison::nan);
  const AttendOutput want = problem.run(judge);
  const auto compare = [&](const std::string& what) {
    AttendProblem other(target, spec, Poison::huge);
    same_rows(judge, problem, want, other, other.run(judge), what);
  };
  {
    const HookScope hook(in_order, nullptr);
    compare("one thread");
  }
  {
    const HookScope hook(backwards, nullptr);
    compare("one thread, backwards");
  }
  for (int threads : {2, 3, 7}) {
    const HookScope hook(interleaved, &threads);
    compare(std::to_string(threads) + " threads");
  }
  return judge.outcome();
}

/// All promises but those about neighbours hold with NaN and infinity among the visible keys, at
/// the same positions.
void add_faults(std::vector<Case>& cases, const AttendSpec& healthy) {
  const AttendSpec s = with_faults(healthy);
  add_placement(cases, s);
  AttendSpec mixed = s;
  mixed.edit_ids = [](std::uint64_t, std::int64_t, std::int64_t, std::vector<std::int32_t>& ids) {
    for (std::int32_t& id : ids) {
      if (id < 0) id = ids.front();
    }
    std::reverse(ids.begin(), ids.end());
  };
  add(cases, "ids backwards and repeated" + suffix(s), [s, mixed](const Target& t) {
    return check_same_bits(t, s, mixed, "ids backwards and repeated");
  });
  add(cases, "workspace caps" + suffix(s), [s](const Target& t) { return check_caps(t, s); });
  add(
      cases, "thread counts and task orders" + suffix(s),
      [s](const Target& t) { return check_threads(t, s); }, true);
  add(cases, "rows that see a NaN have one" + suffix(s),
      [s](const Target& t) { return check_faults(t, s); });
}

}  // namespace

void add_attend_bits(std::vector<Case>& cases) {
  for (DType kv : kv_types) {
    for (std::int64_t m : {1, 4}) {
      for (bool invariant : {false, true}) {
        if (invariant != (kv == DType::f16 || kv == DType::e5m2)) continue;
        add_placement(cases, base(kv, m, invariant));
      }
      const AttendSpec s = base(kv, m, false);
      add(cases, "workspace caps" + suffix(s), [s](const Target& t) { return check_caps(t, s); });
      add(
          cases, "thread counts and task orders" + suffix(s),
          [s](const Target& t) { return check_threads(t, s); }, true);
    }
  }
  add_faults(cases, base(DType::bf16, 1, false));
  add_faults(cases, base(DType::bf16, 4, false));
  add_faults(cases, base(DType::f16, 1, true));
  add_faults(cases, base(DType::e4m3, 4, false));
  add_faults(cases, base(DType::e5m2, 1, true));
  for (std::int64_t m : {1, 2, 4, 8, 16}) add_composition(cases, DType::bf16, m);
  add_composition(cases, DType::f16, 3);
  add_composition(cases, DType::e4m3, 2);
  for (DType kv : kv_types) add_division(cases, 16, kv, 1);
  add_division(cases, 8, DType::bf16, 4);
  add_division(cases, 8, DType::e4m3, 4);
  add_division(cases, 4, DType::e4m3, 1);
  for (DType kv : kv_types) add_invariant(cases, kv, 16, 1);
  add_invariant(cases, DType::bf16, 8, 2);
  add_invariant(cases, DType::bf16, 9, 3);
  const AttendSpec s = base(DType::bf16, 2, false);
  add(
      cases, "report 75: four threads call at once",
      [s](const Target& t) { return check_concurrent<AttendProblem>(t, s, 4); }, true);
}

}  // namespace msa::verify
