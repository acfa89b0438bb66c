// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "verify/attend_problem.h"

/// \file
/// Where arrays lie: misaligned bases, free strides, storage offsets, offsets past 2^31 elements,
/// and calls without anything in them.

namespace msa::verify {
namespace {

constexpr DType kv_types[] = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};

void add(std::vector<Case>& cases, const std::string& name,
         std::function<Outcome(const Target&)> run, bool slow = false, bool cpu_only = false) {
  cases.push_back({"attend", "memory", name, std::move(run), slow, cpu_only});
}

AttendSpec base(std::uint64_t seed) {
  AttendSpec s;
  s.hq = 8;
  s.hkv = 2;
  s.batch.m = 2;
  s.batch.decodes = requests({3, 200, 1500});
  s.batch.prefills = prefills({30}, {400});
  s.seed = seed;
  return s;
}

void add_alignment(std::vector<Case>& cases) {
  for (DType kv : kv_types) {
    for (DType q : {DType::bf16, DType::f16}) {
      AttendSpec s = base(50);
      s.kv = kv;
      s.q = s.out = q;
      s.misalign = 1;
      s.head_pad = 1;
      add(cases,
          std::string("report 71: bases and strides off by one element, q ") + name(q) + ", kv " +
              name(kv),
          [s](const Target& t) { return check_attend(t, s); });
    }
    AttendSpec s = base(51);
    s.kv = kv;
    s.layout = KVLayout::BHLNC;
    s.layers = 4;
    s.layer = 3;
    s.misalign = 16 / static_cast<std::int64_t>(size_of(kv));
    s.head_pad = 24;
    s.head_major_selection = true;
    add(cases, std::string("storage offsets and padded strides, kv ") + name(kv),
        [s](const Target& t) { return check_attend(t, s); });
  }
}

struct FarCache {
  const char* name;
  KVLayout layout;
  Form form;
  std::int64_t hkv;
  std::int64_t layers;
  std::int64_t first_page;
};

/// Page ids at the end of a reservation: the same bits as ids near 0.
void add_far_pages(std::vector<Case>& cases) {
  const FarCache caches[] = {
      {"report 33: past 2 GiB, LBHNC", KVLayout::LBHNC, Form::packed, 4, 1, 8192 - 3},
      {"report 35: across 2^31 elements, LBHNC", KVLayout::LBHNC, Form::packed, 4, 1, 16384 - 4},
      {"report 33: across 2^32 elements, LBNHC", KVLayout::LBNHC, Form::packed, 4, 1, 32768 - 4},
      {"report 30: page ids past 65,536, one head", KVLayout::LBHNC, Form::packed, 1, 1, 70000},
      {"heads outermost, past 2^31 elements", KVLayout::LHBNC, Form::packed, 2, 1, 40000},
      {"60 layers in a page, page 273 of 4 heads", KVLayout::BLHNC, Form::packed, 4, 60, 270},
      {"60 layers in a page, page 1,092 of 1 head", KVLayout::BLNHC, Form::packed, 1, 60, 1090},
      {"60 layers inside the heads", KVLayout::BHLNC, Form::packed, 2, 60, 1100},
      {"report 69: 60 layers, K and V apart", KVLayout::LBHNC, Form::interleaved, 2, 60, 600}};
  for (const FarCache& cache : caches) {
    for (DType kv : {DType::bf16, DType::e4m3}) {
      AttendSpec near = base(52);
      near.hkv = cache.hkv;
      near.hq = 4 * cache.hkv;
      near.kv = kv;
      near.layout = cache.layout;
      near.form = cache.form;
      near.layers = 2;
      near.layer = 1;
      AttendSpec far = near;
      far.layers = cache.layers;
      far.layer = cache.layers - 1;
      far.first_page = cache.first_page;
      // Twice the page id where an element is half as large: offsets in bytes matter too.
      if (kv == DType::e4m3) far.first_page *= 2;
      add(
          cases, std::string(cache.name) + ", kv " + name(kv),
          [near, far](const Target& t) { return check_same_bits(t, near, far, "far pages"); },
          true);
    }
  }
}

/// q, out, lse, the selection and the table with rows so far apart that offsets pass 2^31 elements.
Outcome check_far_rows(const Target& target) {
  Judge judge;
  AttendSpec spec = base(53);
  spec.spare_rows = 0;
  AttendProblem problem(target, spec, Poison::nan);
  const AttendOutput want = problem.run(judge);
  const AttendArgs host = problem.args(Side::host);
  AttendArgs a = problem.args(Side::target);
  FarArrays far(target);
  a.q = far.spread(problem.q().view());
  a.selection = far.spread(problem.selection().view());
  a.batch.block_table = far.spread(problem.table().view());
  a.out = far.blank(host.out);
  a.lse = far.blank(host.lse);
  target.submit([&] { attend(a); });
  target.synchronize();
  const AttendOutput got{far.contents(a.out), far.contents(a.lse)};
  same_rows(judge, problem, want, problem, got, "far rows");
  return judge.outcome();
}

void add_empty(std::vector<Case>& cases) {
  const auto check = [&](const std::string& name, AttendSpec s) {
    s.seed = 54;
    add(cases, name, [s](const Target& t) { return check_attend(t, s); });
  };
  AttendSpec none = base(54);
  none.batch.decodes.clear();
  none.batch.prefills.clear();
  check("no token and no request", none);
  AttendSpec padding = none;
  padding.batch.padding_tokens = 5;
  check("tokens of no request alone", padding);
  none.spare_pages = -1;
  check("no token, no request, no page", none);
  AttendSpec decode_only = base(54);
  decode_only.batch.prefills.clear();
  check("no prefill request", decode_only);
  AttendSpec prefill_only = base(54);
  prefill_only.batch.decodes.clear();
  check("no decode request", prefill_only);
  AttendSpec zero = base(54);
  zero.batch.decodes = requests({0, 0, 0});
  zero.batch.prefills = prefills({4, 0}, {0, 0});
  check("report 47: all lengths 0", zero);
  zero.spare_pages = -1;
  zero.batch.spare_columns = 0;
  check("report 47: all lengths 0, a pool of no pages and a table of no columns", zero);
  zero.causal = false;
  check("report 47: all lengths 0, no pages, causal off", zero);
}

}  // namespace

void add_attend_memory(std::vector<Case>& cases) {
  add_alignment(cases);
  add_far_pages(cases);
  add(cases, "report 32: rows past 2^31 elements of q, out, lse, selection and table",
      check_far_rows, true);
  add_empty(cases);
}

}  // namespace msa::verify
