// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>
#include <string>

#include "common/numeric.h"
#include "verify/write_cache_problem.h"

/// \file
/// write_cache and insert_cache: shapes, layouts, types and scales; extreme values; where things
/// lie.

namespace msa::verify {
namespace {

constexpr DType kv_types[] = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};
constexpr DType activations[] = {DType::bf16, DType::f16};

const char* op_of(const WriteSpec& s) { return s.insert ? "insert_cache" : "write_cache"; }

void add(std::vector<Case>& cases, const char* group, const std::string& name,
         const WriteSpec& spec) {
  cases.push_back(
      {op_of(spec), group, name, [spec](const Target& t) { return check_write(t, spec); }});
}

std::string types_of(const WriteSpec& s) {
  return std::string(", ") + name(s.type) + " into " + name(s.kv) + " and " + name(s.index);
}

void add_grid(std::vector<Case>& cases, const WriteSpec& base) {
  for (DType type : activations) {
    for (DType kv : kv_types) {
      WriteSpec s = base;
      s.type = type;
      s.kv = kv;
      s.index = is_fp8(kv) ? DType::e4m3 : DType::bf16;
      for (std::int64_t tokens : {0, 1, 7, 64, 513}) {
        s.tokens = tokens;
        s.hq = tokens == 513 ? 2 : 16;
        s.seed = static_cast<std::uint64_t>(tokens + 1);
        add(cases, "grid", std::to_string(tokens) + " tokens" + types_of(s), s);
      }
      s.tokens = 20;
      s.hq = 4;
      for (KVLayout layout : all_kv_layouts) {
        s.layout = layout;
        s.layers = 3;
        s.layer = 1;
        add(cases, "grid", std::string(name(layout)) + types_of(s), s);
      }
      s.split_views = true;
      add(cases, "grid", "K and V in two pools" + types_of(s), s);
    }
  }
}

void add_scales(std::vector<Case>& cases, const WriteSpec& base) {
  for (DType type : activations) {
    for (DType kv : kv_types) {
      WriteSpec s = base;
      s.type = type;
      s.kv = kv;
      s.tokens = 30;
      s.hq = 2;
      for (float scale : {0.25f, 8.0f, 0.3f, 1.7f}) {
        s.k_scale = scale;
        s.v_scale = 2 * scale;
        s.device_scales = false;
        const std::string suffix = " k / " + std::to_string(scale) + types_of(s);
        add(cases, "scales", "host scales," + suffix, s);
        s.device_scales = true;
        add(cases, "scales", "device scales," + suffix, s);
      }
      s.k_scale = s.v_scale = 0x1p-10f;
      s.gain = 4;
      add(cases, "scales", "values past the type's largest" + types_of(s), s);
    }
  }
}

void add_shards(std::vector<Case>& cases) {
  struct Shard {
    std::int64_t hq, hkv, hi;
  };
  for (const Shard& shard : {Shard{64, 4, 4}, Shard{32, 2, 2}, Shard{16, 1, 1}, Shard{8, 1, 1},
                             Shard{4, 1, 1}, Shard{9, 3, 0}, Shard{16, 4, 0}, Shard{4, 4, 16}}) {
    for (bool index_q_as_input : {false, true}) {
      WriteSpec s;
      s.hq = shard.hq;
      s.hkv = shard.hkv;
      s.hi = shard.hi;
      s.tokens = 15;
      s.index = DType::e4m3;
      s.index_q_as_input = index_q_as_input;
      add(cases, "grid",
          std::to_string(s.hq) + "/" + std::to_string(s.hkv) + "/" + std::to_string(s.hi) +
              " heads, index_q in " + (index_q_as_input ? "the input's" : "the cache's") + " type",
          s);
    }
  }
  for (DType weights : {DType::bf16, DType::f16, DType::f32}) {
    for (DType cos_sin : {DType::bf16, DType::f16, DType::f32}) {
      WriteSpec s;
      s.weights = weights;
      s.cos_sin = cos_sin;
      s.tokens = 15;
      s.type = DType::f16;
      s.kv = DType::f16;
      add(cases, "grid", std::string("weights ") + name(weights) + ", cos and sin " + name(cos_sin),
          s);
    }
  }
}

/// Magnitudes whose squares leave f32, zeros, and heads with NaN or infinities in them.
void add_values(std::vector<Case>& cases) {
  for (DType type : activations) {
    const std::string suffix = std::string(", ") + name(type);
    WriteSpec s;
    s.type = s.kv = type;
    s.tokens = 12;
    s.skips = false;
    const auto with = [&](const std::string& what, double x, std::int64_t step) {
      WriteSpec v = s;
      v.edit = [x, step](std::int64_t token, std::int64_t, DType t, void* head) {
        for (std::int64_t i = token % 4; i < head_dim; i += step) store(t, head, i, x);
      };
      add(cases, "values", what + suffix, v);
    };
    const double largest = type == DType::bf16 ? 3e38 : 65504;
    with("some elements as large as the type allows", largest, 5);
    with("all elements as large as the type allows", largest, 1);
    with("all elements 0", 0, 1);
    with("elements as small as the type allows", type == DType::bf16 ? 1e-40 : 6e-8, 1);
    with("NaN elements", std::numeric_limits<double>::quiet_NaN(), 50);
    with("infinite elements", std::numeric_limits<double>::infinity(), 50);
    WriteSpec tiny = s;
    tiny.gain = type == DType::bf16 ? 0x1p-70 : 0x1p-12;
    tiny.eps = 0;
    add(cases, "values", "tiny heads, eps 0" + suffix, tiny);
    tiny.eps = 1e-5f;
    add(cases, "values", "tiny heads, eps 1e-5" + suffix, tiny);

    WriteSpec payload = s;  // V keeps every bit pattern
    payload.edit = [](std::int64_t token, std::int64_t, DType, void* head) {
      for (std::int64_t i = 0; i < head_dim; ++i) {
        const auto bits = static_cast<std::uint16_t>(token * 5437 + i * 512 + i);
        std::memcpy(static_cast<char*>(head) + 2 * i, &bits, 2);
      }
    };
    payload.insert = true;
    add(cases, "grid", "every bit pattern is kept" + suffix, payload);
    for (DType kv : {DType::e4m3, DType::e5m2}) {
      payload.kv = kv;
      payload.index = DType::e4m3;
      add(cases, "grid", "every bit pattern" + types_of(payload), payload);
    }
  }
}

void add_insert_parts(std::vector<Case>& cases) {
  WriteSpec s;
  s.insert = true;
  s.tokens = 30;
  s.hi = 0;
  add(cases, "grid", "the main cache alone", s);
  s.hi = 1;
  s.main_part = false;
  add(cases, "grid", "the index cache alone", s);
  s.index = DType::e4m3;
  s.type = DType::f16;
  add(cases, "grid", "the index cache alone, f16 into e4m3", s);
}

/// Rows past 2^31 elements of the activations and of the queries.
Outcome check_far_rows(const Target& target, const WriteSpec& spec) {
  Judge judge;
  const WriteOutput want = WriteProblem(target, spec, Poison::nan).run(judge);
  WriteProblem problem(target, spec, Poison::huge);
  const WriteCacheArgs host = problem.write_args(Side::host);
  FarArrays far(target);
  WriteCacheArgs call;
  const WriteOutput got = problem.run(judge, [&](WriteCacheArgs& a) {
    a.qkv = far.spread(problem.qkv().view());
    a.q_out = far.blank(host.q_out);
    if (spec.hi > 0) a.index_q_out = far.blank(host.index_q_out);
    call = a;
  });
  const auto compare = [&](const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                           DType type, const std::string& what) {
    const auto size = size_of(type);
    judge.require(a.size() == b.size(), what + " of another size");
    if (judge.passed()) {
      judge.same_bits(a.data(), b.data(), size, {static_cast<std::int64_t>(a.size() / size)}, what);
    }
  };
  compare(got.k, want.k, spec.kv, "k");
  compare(got.v, want.v, spec.kv, "v");
  compare(got.index_k, want.index_k, spec.index, "index_k");
  if (spec.insert) return judge.outcome();
  compare(far.contents(call.q_out), want.q, spec.type, "q_out");
  compare(far.contents(call.index_q_out), want.index_q, problem.index_q_type(), "index_q_out");
  return judge.outcome();
}

/// Where arrays lie must not matter.
void add_memory(std::vector<Case>& cases, const WriteSpec& base) {
  const auto same = [&](const std::string& what, const WriteSpec& a, const WriteSpec& b,
                        bool slow = false) {
    cases.push_back({op_of(base), "memory", what,
                     [a, b, what](const Target& t) { return check_same_bits(t, a, b, what); },
                     slow});
  };
  for (DType kv : {DType::bf16, DType::e4m3}) {
    WriteSpec s = base;
    s.kv = s.index = kv;
    s.tokens = 40;
    s.hq = 4;
    const std::string suffix = types_of(s);
    WriteSpec o = s;
    o.misalign = 1;
    o.pad = 3;
    o.index_pad = 5;
    same("report 71: bases and strides off by one element" + suffix, s, o);
    o = s;
    o.slot_seed = 7;
    o.layout = KVLayout::LBNHC;
    same("other slots in another layout" + suffix, s, o);
    o = s;
    o.first_token = 13;
    o.tokens = 5;
    same("a token alone and in a batch" + suffix, s, o);
    const std::int64_t factor = kv == DType::e4m3 ? 2 : 1;
    o = s;
    o.first_page = 32768 * factor - 1;
    same("report 30: offsets past 2^31 elements" + suffix, s, o, true);
    o.layout = KVLayout::LHBNC;
    same("heads outermost, past 2^31 elements" + suffix, s, o, true);
    o.layout = KVLayout::BLNHC;
    o.layers = 60;
    o.layer = 59;
    o.first_page = 600 * factor;
    same("60 layers in a page, past 2^31 elements" + suffix, s, o, true);
    o = s;
    o.first_page = 131072 * factor - 1;
    o.hkv = s.hkv;
    same("index cache past 2^31 elements" + suffix, s, o, true);
    WriteSpec rows = s;
    rows.spare_rows = 0;
    rows.skips = false;  // every row is written
    cases.push_back({op_of(base), "memory", "report 32: rows past 2^31 elements" + suffix,
                     [rows](const Target& t) { return check_far_rows(t, rows); }, true});
  }
}

}  // namespace

void add_write_cases(std::vector<Case>& cases) {
  const WriteSpec write;
  WriteSpec insert;
  insert.insert = true;
  for (const WriteSpec& base : {write, insert}) {
    add_grid(cases, base);
    add_scales(cases, base);
    add_memory(cases, base);
  }
  add_shards(cases);
  add_values(cases);
  add_insert_parts(cases);
}

}  // namespace msa::verify
