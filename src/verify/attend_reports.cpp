// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "common/numeric.h"
#include "msa/error.h"
#include "verify/attend_problem.h"

/// \file
/// Faults that users of other kernels reported, each as the input that showed it. Numbers are those
/// of the project's list of field reports.

namespace msa::verify {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

void add(std::vector<Case>& cases, const std::string& name,
         std::function<Outcome(const Target&)> run, bool slow = false) {
  cases.push_back({"attend", "reports", "report " + name, std::move(run), slow, false});
}

void add(std::vector<Case>& cases, const std::string& name, const AttendSpec& spec,
         bool slow = false) {
  add(
      cases, name, [spec](const Target& t) { return check_attend(t, spec); }, slow);
}

AttendSpec decode(std::initializer_list<std::int64_t> keys, std::int64_t m = 1) {
  AttendSpec s;
  s.hq = 8;
  s.hkv = 2;
  s.batch.m = m;
  s.batch.decodes = requests(keys);
  s.seed = 200;
  return s;
}

AttendSpec prefill(std::initializer_list<std::int64_t> queries,
                   std::initializer_list<std::int64_t> keys) {
  AttendSpec s = decode({});
  s.batch.prefills = prefills(queries, keys);
  return s;
}

/// Every row's list starts with these ids, then −1.
void fix_ids(AttendSpec& s, const std::vector<std::int32_t>& fixed) {
  s.edit_ids = [fixed](std::uint64_t, std::int64_t, std::int64_t, std::vector<std::int32_t>& ids) {
    std::fill(ids.begin(), ids.end(), -1);
    std::copy(fixed.begin(), fixed.end(), ids.begin());
  };
}

void add_indices(std::vector<Case>& cases) {
  const std::pair<std::int64_t, std::int64_t> views[] = {{4, 4}, {1, 4}, {5, 1}, {7, 2}};
  for (const auto& [tokens, heads] : views) {
    AttendSpec s = decode({});
    s.hkv = heads;
    s.hq = 4 * heads;
    for (std::int64_t t = 0; t < tokens; ++t) {
      s.batch.decodes.push_back({1, 700 + 300 * t, static_cast<std::uint64_t>(t + 1)});
    }
    s.topk = 4;
    s.spare_rows = 0;
    AttendSpec head_major = s;
    head_major.head_major_selection = true;
    add(cases, "1: head-major ids, T " + std::to_string(tokens) + ", H " + std::to_string(heads),
        [s, head_major](const Target& t) {
          return check_same_bits(t, s, head_major, "head-major ids");
        });
  }
  AttendSpec after = decode({700, 1300, 100});
  after.edit_ids = [](std::uint64_t content, std::int64_t, std::int64_t,
                      std::vector<std::int32_t>& ids) {
    for (std::size_t i = 0; content == 2 && i < ids.size(); ++i) ids[i] = static_cast<int>(11 + i);
  };
  add(cases, "2: a row whose ids all lie after its causal limit", after);
  const std::vector<std::int32_t> lists[] = {
      {5, -1, -1}, {}, {-1, 3, -1, 0}, {-1, 3, -1, 2}, {3, 3, 3}, {2143289344, 1, 2147483647, 2}};
  const char* const names[] = {"4: ids 5 then -1",    "4: ids all -1",
                               "4: ids -1, 3, -1, 0", "4: holes, table column 0 poisoned",
                               "12: ids 3, 3, 3",     "5: NaN bits and INT_MAX among the ids"};
  for (std::size_t i = 0; i < std::size(lists); ++i) {
    for (std::int64_t m : {1, 4}) {
      AttendSpec s = decode({900, 2000}, m);
      s.batch.prefills = prefills({6}, {800});
      fix_ids(s, lists[i]);
      add(cases, std::string(names[i]) + ", m " + std::to_string(m), s);
    }
  }
  AttendSpec late = decode({2500, 4000}, 2);
  late.ids = Ids::late;
  add(cases, "6: the first chunks all invalid", late);
  AttendSpec zero = decode({300, 900, 1700, 2500, 3300}, 4);
  zero.batch.prefills = prefills({50}, {2000});
  zero.ids = Ids::block0;
  add(cases, "12: all queries choose block 0", zero);
  AttendSpec narrow = decode({1300, 700}, 2);
  narrow.batch.spare_columns = -2;
  narrow.batch.table_pad = 2;
  narrow.ids = Ids::messy;
  add(cases, "13: a table narrower than the context", narrow);
  AttendSpec shape = decode({});
  shape.hq = 32;
  shape.hkv = 2;
  for (std::int64_t keys : {1, 2, 100, 128, 129, 1000, 2048, 2049, 4095, 4096}) {
    shape.batch.decodes.push_back({1, keys, static_cast<std::uint64_t>(keys)});
  }
  add(cases, "3: decode of 32/2 heads, 1 to 4096 keys", shape);
  AttendSpec needle = decode({131072});
  needle.edit_ids = [](std::uint64_t, std::int64_t, std::int64_t, std::vector<std::int32_t>& ids) {
    ids[7] = 517;
  };
  needle.edit_q = [](std::uint64_t, std::int64_t, std::int64_t, const Elements& q) {
    q.fill(0, head_dim, 1);
  };
  needle.edit_tile = [](std::uint64_t, std::int64_t block, std::int64_t, const Elements& tile) {
    if (block == 517) tile.fill(77 * 2 * head_dim, head_dim, 1);
  };
  // The needle's weight is near 1: out is one value, not a mean of many.
  add(cases, "17: a needle at 128K",
      [needle](const Target& t) { return check_attend(t, needle, {.unit_variance = false}); });
}

/// Lengths of a batch, with x past the lengths in K (part 0) or V (part 1), the other half clean.
Outcome check_tail(const Target& target, const AttendSpec& spec, int part, double x) {
  Judge judge;
  AttendProblem problem(target, spec, Poison::nan);
  for (std::size_t r = 0; r < spec.batch.decodes.size(); ++r) {
    const Request& request = spec.batch.decodes[r];
    const std::int64_t block = (request.keys - 1) / page_size;
    for (std::int64_t h = 0; h < spec.hkv; ++h) {
      for (std::int64_t j = request.keys - block * page_size; j < page_size; ++j) {
        problem.cache_row(request.content, block, h, j, part).fill(0, head_dim, x);
        problem.cache_row(request.content, block, h, j, 1 - part).fill(0, head_dim, 0);
      }
    }
  }
  const AttendOutput output = problem.run(judge);
  judge_against_reference(judge, problem, output);
  return judge.outcome();
}

void add_poison(std::vector<Case>& cases) {
  AttendSpec shortest = decode({1, 3});
  shortest.q = shortest.kv = shortest.out = DType::f16;
  add(cases, "20: lengths 1 and 3, f16, NaN past them", shortest);
  for (DType kv : {DType::bf16, DType::f16, DType::e5m2}) {
    for (int part : {0, 1}) {
      for (double x : {not_a_number, infinity}) {
        AttendSpec s = decode({32, 64, 96, 48});
        s.kv = kv;
        add(cases,
            std::string(part == 0 ? "26: " : "21: ") + (std::isnan(x) ? "NaN" : "Inf") + " in " +
                (part == 0 ? "K" : "V") + " alone past the length, kv " + name(kv),
            [=](const Target& t) { return check_tail(t, s, part, x); });
      }
    }
  }
  for (DType kv : {DType::bf16, DType::e4m3}) {
    AttendSpec pages = decode({129, 255, 256 + 63, 256 + 64, 256 + 65, 384 + 127});
    pages.kv = kv;
    add(cases, std::string("22: lengths at 1, 63, 64, 65, 127 in a page, kv ") + name(kv), pages);
    AttendSpec odd = decode({1, 3, 5, 7, 9, 11, 13, 15, 17, 31, 33});
    odd.kv = kv;
    add(cases, std::string("23: lengths off the vector width, kv ") + name(kv), odd);
  }
  add(cases, "24, 77: a NaN warm-up of a larger call leaves nothing behind", [](const Target& t) {
    Judge judge;
    const AttendSpec s = decode({700, 3}, 2);
    AttendProblem before(t, s, Poison::huge), after(t, s, Poison::huge);
    const AttendOutput want = before.run(judge);
    AttendSpec sick = decode({1000, 1000, 1000}, 8);
    sick.edit_tile = [](std::uint64_t, std::int64_t, std::int64_t, const Elements& tile) {
      tile.fill(0, page_size * 2 * head_dim, not_a_number);
    };
    AttendProblem(t, sick, Poison::nan).run(judge);
    same_rows(judge, before, want, after, after.run(judge), "after the warm-up");
    return judge.outcome();
  });
  AttendSpec one = decode({4000});
  one.hq = 16;
  one.hkv = 1;
  fix_ids(one, {20});
  add(cases, "27: one block of one request", one);
  AttendSpec pads = decode({300, 0}, 2);
  pads.batch.prefills = prefills({3, 0}, {130, 0});
  pads.batch.padding_tokens = 4;
  add(cases, "28: every padded row is written", pads);
  AttendSpec dead = decode({2000, 1500}, 2);
  fix_ids(dead, {9, 10, 11});
  dead.spare_pages = 0;
  add(cases, "29: dead table entries share one NaN page", dead);
}

/// T of thousands of short rows, every one of them compared with its twin.
Outcome check_many(const Target& target, const AttendSpec& spec) {
  Judge judge;
  const AttendOutput output = poisoned_run(target, spec, judge);
  const AttendProblem problem(target, spec, Poison::nan);
  judge_against_reference(judge, problem, output);
  same_rows(judge, problem, output, problem, output, "rows of equal content");
  return judge.outcome();
}

void add_limits(std::vector<Case>& cases) {
  for (std::int64_t batch : {65535, 65536, 70000}) {
    AttendSpec s = decode({});
    s.hq = 2;
    s.hkv = 1;
    s.topk = 1;
    for (std::int64_t r = 0; r < batch; ++r) {
      s.batch.decodes.push_back({1, 1 + r % 3, static_cast<std::uint64_t>(1 + r % 3)});
    }
    add(
        cases, "36: " + std::to_string(batch) + " decode requests",
        [s](const Target& t) { return check_many(t, s); }, true);
    AttendSpec p = s;
    std::swap(p.batch.decodes, p.batch.prefills);
    add(
        cases, "36: " + std::to_string(batch) + " prefill requests",
        [p](const Target& t) { return check_many(t, p); }, true);
  }
  AttendSpec s = decode({});
  s.hq = 32;
  s.hkv = 2;
  s.topk = 2;
  for (std::int64_t r = 0; r < 2050; ++r) {
    s.batch.prefills.push_back({1 + r % 2, 3 + r % 4, static_cast<std::uint64_t>(1 + r % 4)});
  }
  add(
      cases, "39: 2,050 short sequences of 32 heads",
      [s](const Target& t) { return check_many(t, s); }, true);
}

/// 38: more rows of one request than a grid's second and third dimensions count.
void add_long_prompt(std::vector<Case>& cases) {
  AttendSpec s = decode({});
  s.hq = 1;
  s.hkv = 1;
  s.topk = 1;
  s.batch.prefills = prefills({65535 + 128}, {65535 + 128});
  add(cases, "38: 65,663 rows of one request", s, true);
}

/// A padded row whose table row names no page.
Outcome check_padding(const Target& target, std::int32_t cell, std::int32_t length) {
  Judge judge;
  AttendSpec s = decode({300, 129, 700, 5, 128, 0, 0, 0}, 2);
  AttendProblem clean(target, s, Poison::nan), padded(target, s, Poison::huge);
  const AttendOutput want = clean.run(judge);
  for (std::int64_t r = 5; r < 8; ++r) {
    i32(padded.seq_lens(), r) = length;
    for (std::int64_t c = 0; c < padded.table().view().shape[1]; ++c) {
      i32(padded.table(), r, c) = cell;
    }
    for (std::int64_t t = 2 * r; t < 2 * r + 2; ++t) {
      for (std::int64_t h = 0; h < s.hkv; ++h) i32(padded.selection(), t, h, 0) = 0;
    }
  }
  const AttendOutput got = padded.run(judge);
  const std::int64_t rows = 10;  // of the five real requests; the padded ones need only not fault
  judge.same_bits(want.out.data(), got.out.data(), 2, {rows, s.hq, head_dim}, "real rows");
  judge.same_bits(want.lse.data(), got.lse.data(), 4, {rows, s.hq}, "real rows' lse");
  const auto row = static_cast<std::size_t>(s.hq) * head_dim * 2;
  const bool empty = length == 0 || cell == -1;
  const bool zeros = std::all_of(got.out.begin() + static_cast<std::ptrdiff_t>(rows * row),
                                 got.out.end(), [](std::byte b) { return b == std::byte{0}; });
  judge.require(!empty || zeros, "padded rows are not empty rows");
  return judge.outcome();
}

/// A call for three requests on the arrays that eight filled.
Outcome check_stale(const Target& target) {
  Judge judge;
  const AttendSpec eight = decode({300, 129, 700, 5, 128, 900, 1000, 77}, 2);
  AttendSpec three = eight;
  three.batch.decodes.resize(3);
  AttendProblem large(target, eight, Poison::nan), small(target, three, Poison::nan);
  const AttendOutput all = large.run(judge), want = small.run(judge);
  same_rows(judge, small, want, large, all, "eight requests");
  AttendProblem stale(target, eight, Poison::huge);
  i32(stale.seq_lens(), 3) = -5;  // what a replay may leave behind the live requests
  const AttendOutput got = stale.run(judge, [](AttendArgs& call) {
    call.batch.num_decodes = 3;
    call.batch.num_actual_tokens = 6;
  });
  same_rows(judge, small, want, small, got, "three of eight");
  return judge.outcome();
}

/// One array for all calls: lengths, tables, ids and values change in place, a thousand times.
Outcome check_replays(const Target& target) {
  constexpr std::size_t contents = 20, calls = 1000;
  constexpr std::int64_t blocks[] = {10, 6, 3, 1};  // of the requests, in turn: one shape for all
  Judge judge;
  std::vector<std::unique_ptr<AttendProblem>> problems;
  std::vector<AttendOutput> want;
  for (std::size_t i = 0; i < contents; ++i) {
    AttendSpec s = decode({}, 2);
    for (std::size_t r = 0; r < 4; ++r) {
      const auto keys =
          blocks[(i + r) % 4] * page_size - static_cast<std::int64_t>(i * 37 + r) % 120;
      s.batch.decodes.push_back({1, keys, 10 * i + r});
    }
    s.batch.bound_slack = 10 * page_size - s.batch.max_keys();
    if (i % 2 == 1) {
      s.edit_ids = [](std::uint64_t, std::int64_t, std::int64_t, std::vector<std::int32_t>& ids) {
        std::reverse(ids.begin(), ids.end());
      };
    }
    s.seed = 300 + i;
    s.page_seed = i;
    problems.push_back(std::make_unique<AttendProblem>(target, s, Poison::nan));
    want.push_back(problems.back()->run(judge));
    judge_against_reference(judge, *problems.back(), want.back());
  }
  AttendProblem replayed(target, problems[0]->spec(), Poison::huge);
  for (std::size_t call = 0; call < calls && judge.passed(); ++call) {
    const std::size_t i = call * 7 % contents;
    replayed.take_contents(*problems[i]);
    same_rows(judge, *problems[i], want[i], *problems[i], replayed.run(judge),
              "call " + std::to_string(call));
  }
  return judge.outcome();
}

/// Contents changed in place between two calls of the same pointers.
Outcome check_in_place(const Target& target) {
  Judge judge;
  const AttendSpec s = decode({300, 1200}, 2);
  AttendSpec changed = s;
  changed.seed = 201;
  AttendProblem first(target, s, Poison::nan), second(target, changed, Poison::nan);
  const AttendOutput want = second.run(judge);
  first.run(judge);
  first.take_contents(second);
  same_rows(judge, second, want, first, first.run(judge), "contents changed in place");
  return judge.outcome();
}

/// A cache that was freed and made again, elsewhere or not, with other contents.
Outcome check_reallocated(const Target& target) {
  Judge judge;
  const AttendSpec s = decode({300, 1200}, 2);
  AttendSpec changed = s;
  changed.seed = 202;
  AttendProblem fresh(target, changed, Poison::nan);
  const AttendOutput want = fresh.run(judge);
  auto old = std::make_unique<AttendProblem>(target, s, Poison::nan);
  old->run(judge);
  const auto* const old_place = old->args(Side::target).kv_cache.packed.data;
  AttendProblem moved(target, changed, Poison::huge);  // elsewhere, as the old one still lives
  judge.require(moved.args(Side::target).kv_cache.packed.data != old_place, "the same address");
  same_rows(judge, fresh, want, moved, moved.run(judge), "another address");
  old.reset();
  AttendProblem again(target, changed, Poison::huge);  // perhaps where the old one was
  same_rows(judge, fresh, want, again, again.run(judge), "after the old one was freed");
  return judge.outcome();
}

void add_padding(std::vector<Case>& cases) {
  for (std::int32_t length : {0, 1}) {
    for (std::int32_t cell : {-1, 0, std::numeric_limits<std::int32_t>::max()}) {
      add(cases,
          "42, 44: padded rows of length " + std::to_string(length) + ", table " +
              std::to_string(cell),
          [=](const Target& t) { return check_padding(t, cell, length); });
    }
  }
  add(cases, "46: three requests on the arrays of eight", check_stale);
  add(cases, "48: nothing is remembered by address", check_in_place);
  add(cases, "48: a cache freed and made again", check_reallocated);
  add(cases, "50: 1,000 calls on arrays that change in place", check_replays, true);
}

void add_lengths(std::vector<Case>& cases) {
  add(cases, "51: lengths 0, 5, 0, 129", decode({0, 5, 0, 129}));
  add(cases, "51: lengths 0, 5, 0, 129, m 4", decode({0, 5, 0, 129}, 4));
  add(cases, "52: zero-length keys between guard bands", prefill({3, 2, 1}, {0, 5, 0}));
  add(cases, "53: queries without keys, keys without queries, neither",
      prefill({3, 0, 0, 4}, {0, 130, 0, 300}));
  for (std::int64_t prefix : {1000, 1024}) {
    add(cases, "56: 7 queries after a prefix of " + std::to_string(prefix),
        prefill({7}, {prefix + 7}));
  }
  add(cases, "58: 18,200 keys", prefill({5, 30}, {18200, 18201}));
  for (std::int64_t m = 2; m <= 8; ++m) {
    add(cases, "80: a draft of " + std::to_string(m) + " across a page edge",
        decode({128 + m / 2, 256 + 1, 1024 + m - 1, 384}, m));
  }
  for (const auto& [hq, hkv] : {std::pair<std::int64_t, std::int64_t>{64, 4}, {16, 1}}) {
    AttendSpec s = decode({}, 4);
    s.hq = hq;
    s.hkv = hkv;
    s.ids = Ids::disjoint;
    s.batch.decodes = {{1, 8192, 1}, {1, 100000, 2}, {1, 8192 + 55, 1}, {1, 900, 3}};
    add(cases,
        "81: draft rows with blocks of their own, shared prefixes, " + std::to_string(hq) + "/" +
            std::to_string(hkv) + " heads",
        s);
    // Few contents: the batch and the contexts must be large, not the cache.
    AttendSpec large = s;
    large.ids = Ids::sorted;
    large.batch.m = 2;
    large.batch.decodes.clear();
    const std::int64_t batch = hq == 16 ? 256 : 16;
    for (std::int64_t r = 0; r < batch; ++r) {
      const std::int64_t lengths[] = {8192, 100000, 200000, 8192 - 77};
      const auto content = static_cast<std::uint64_t>(1 + r % 4 % 3);  // two share a prefix
      large.batch.decodes.push_back({1, lengths[r % 4], content});
    }
    add(cases,
        "81: a batch of " + std::to_string(batch) + " at contexts up to 200,000, " +
            std::to_string(hq) + "/" + std::to_string(hkv) + " heads",
        large);
  }
}

/// 63: scales fold into the softmax scale and into out; a q of bytes is refused in words.
Outcome check_scales(const Target& target, DType kv) {
  Judge judge;
  AttendSpec s = decode({300, 700}, 2);
  s.batch.prefills = prefills({9}, {500});
  s.kv = kv;
  s.k_scale = 0.25f;
  s.v_scale = 0.5f;
  const AttendOutput scaled = poisoned_run(target, s, judge);
  AttendProblem problem(target, s, Poison::nan);
  judge_against_reference(judge, problem, scaled);
  AttendSpec folded = s;
  folded.k_scale = 1;
  folded.v_scale = 1;
  folded.softmax_scale = s.softmax_scale * s.k_scale;
  AttendProblem plain(target, folded, Poison::nan);
  const AttendOutput halved = plain.run(judge);
  const auto elements = static_cast<std::int64_t>(scaled.out.size() / size_of(s.out));
  for (std::int64_t i = 0; i < elements; ++i) {
    // Powers of two: the folded call differs by its rounding of halves at most.
    const double got = load(s.out, scaled.out.data(), i), want = load(s.out, halved.out.data(), i);
    judge.near(got, want * s.v_scale, 1.7e-2 * s.v_scale, "out at element " + std::to_string(i));
  }
  AttendArgs bytes = problem.args(Side::target);
  bytes.q.dtype = kv;
  try {
    attend(bytes);
    judge.require(false, "a q of fp8 was accepted");
  } catch (const Error& e) {
    const std::string allowed = std::string("'q' has dtype ") + name(kv) + "; allowed: bf16, f16";
    judge.require(std::string(e.what()).find(allowed) != std::string::npos, e.what());
  }
  return judge.outcome();
}

/// 66: a cache of a type that no kernel reads is refused in words, and nothing is written.
Outcome check_cache_types(const Target& target) {
  Judge judge;
  AttendProblem problem(target, decode({300, 700}, 2), Poison::nan);
  const AttendOutput want = problem.run(judge);
  for (const DType type : {DType::f32, DType::i32, DType::i64, DType::u8, static_cast<DType>(99)}) {
    AttendArgs a = problem.args(Side::target);
    a.kv_cache.packed.dtype = type;
    try {
      attend(a);
      judge.require(false, std::string("a cache of ") + name(type) + " was accepted");
    } catch (const Error& e) {
      const std::string text =
          std::string("'kv_cache' has dtype ") + name(type) + "; allowed: bf16, f16, e4m3, e5m2";
      judge.require(std::string(e.what()).find(text) != std::string::npos, e.what());
    }
  }
  same_rows(judge, problem, want, problem, problem.run(judge), "after the refusals");
  return judge.outcome();
}

/// 83: a draft model's attention: one KV head a query head, every block chosen.
AttendSpec dense_draft(std::int64_t heads, std::int64_t m) {
  AttendSpec s = decode({1, 127, 128, 129, 1900, 2048}, m);
  s.batch.prefills = prefills({130}, {600});
  s.hq = heads;
  s.hkv = heads;
  s.topk = 16;
  std::vector<std::int32_t> every(16);
  for (std::int32_t b = 0; b < 16; ++b) every[static_cast<std::size_t>(b)] = b;
  fix_ids(s, every);
  return s;
}

/// Each (Hq, Hkv, topk, m) works, or is refused in words before anything is written.
/// The `cell`-th head counts: over 16 cells in a row, every topk meets every m.
Outcome check_sweep(const Target& target, std::int64_t hq, std::int64_t hkv, std::int64_t cell) {
  Judge judge;
  std::int64_t m = 1 + cell % max_decode_query_len;
  for (std::int64_t topk : {1, 8, 16, 32, 64}) {
    AttendSpec s = decode({130, 300}, m);
    m = 1 + (m + 4) % max_decode_query_len;
    s.hq = hq;
    s.hkv = hkv;
    s.topk = topk;
    const bool valid = hq % hkv == 0 && hq / hkv <= max_group;
    try {
      AttendProblem problem(target, s, Poison::nan);
      const AttendOutput output = problem.run(judge);
      judge.require(valid, "a head count that the contract excludes was accepted");
      judge_against_reference(judge, problem, output);
    } catch (const Error& e) {
      judge.require(!valid && std::string(e.what()).find("heads") != std::string::npos, e.what());
    }
  }
  return judge.outcome();
}

void add_shapes(std::vector<Case>& cases) {
  std::int64_t cell = 0;
  for (std::int64_t hq : {1, 2, 4, 8, 16, 32, 64}) {
    for (std::int64_t hkv : {1, 2, 4}) {
      // Counts that are refused take no cell; one of the others takes two, as they are 15.
      const bool valid = hq % hkv == 0 && hq / hkv <= max_group;
      const std::int64_t first = cell, cells = !valid ? 0 : hq == 16 && hkv == 1 ? 2 : 1;
      cell += cells;
      add(cases,
          "19: " + std::to_string(hq) + "/" + std::to_string(hkv) + " heads work or are refused",
          [=](const Target& t) {
            Outcome all = check_sweep(t, hq, hkv, first);
            for (std::int64_t i = 1; i < cells && all.passed; ++i) {
              all = check_sweep(t, hq, hkv, first + i);
            }
            return all;
          });
    }
  }
  for (const auto& [hq, hkv] :
       {std::pair<std::int64_t, std::int64_t>{64, 4}, {32, 2}, {16, 1}, {8, 1}, {4, 1}}) {
    AttendSpec s = decode({300, 700}, 2);
    s.hq = hq;
    s.hkv = hkv;
    s.batch.prefills = prefills({9}, {500});
    add(cases,
        "73: the tensor-parallel shard of " + std::to_string(hq) + "/" + std::to_string(hkv) +
            " heads",
        s);
  }
  for (DType kv : {DType::e4m3, DType::e5m2}) {
    AttendSpec s = decode({300, 700}, 2);
    s.kv = kv;
    add(cases, std::string("64: bf16 q with a cache of ") + name(kv), s);
  }
  for (DType kv : {DType::e4m3, DType::e5m2}) {
    add(cases, std::string("63: scales of a cache of ") + name(kv),
        [kv](const Target& t) { return check_scales(t, kv); });
  }
  add(cases, "66: cache types without a kernel", check_cache_types);
  for (std::int64_t heads : {1, 4, 8}) {
    for (std::int64_t m : {1, 4, 16}) {
      add(cases,
          "83: dense attention of " + std::to_string(heads) + "/" + std::to_string(heads) +
              " heads, m " + std::to_string(m),
          dense_draft(heads, m));
    }
  }
  add(cases, "65: a cache that arrives as bytes", [](const Target& t) {
    Judge judge;
    AttendSpec s = decode({300, 700}, 2);
    s.kv = DType::e4m3;
    AttendProblem problem(t, s, Poison::nan);
    const AttendOutput want = problem.run(judge);
    AttendArgs a = problem.args(Side::target);
    a.kv_cache.packed = a.kv_cache.packed.as(DType::u8);
    try {
      attend(a);
      judge.require(false, "bytes without a named type were accepted");
    } catch (const Error& e) {
      judge.require(std::string(e.what()).find("u8") != std::string::npos, e.what());
    }
    const AttendOutput got = problem.run(judge, [](AttendArgs& call) {
      call.kv_cache.packed = call.kv_cache.packed.as(DType::u8).as(*parse_dtype("fp8"));
    });
    same_rows(judge, problem, want, problem, got, "bytes named fp8");
    return judge.outcome();
  });
  AttendSpec interleaved = decode({300, 700, 2000}, 2);
  interleaved.form = Form::interleaved;
  add(cases, "67: K and V interleaved per page", interleaved);
  interleaved.form = Form::halves;
  interleaved.layout = KVLayout::LBNHC;
  add(cases, "67: K and V as halves of one view", interleaved);
}

}  // namespace

void add_attend_reports(std::vector<Case>& cases) {
  add_indices(cases);
  add_poison(cases);
  add_limits(cases);
  add_long_prompt(cases);
  add_padding(cases);
  add_lengths(cases);
  add_shapes(cases);
}

}  // namespace msa::verify
