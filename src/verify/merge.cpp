// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/merge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "common/numeric.h"
#include "reference/reference.h"
#include "verify/compare.h"
#include "verify/inputs.h"
#include "verify/memory.h"

namespace msa::verify {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr DType types[] = {DType::bf16, DType::f16, DType::f32};

struct MergeSpec {
  std::int64_t tokens = 7;
  std::int64_t heads = 4;
  DType type = DType::bf16;
  bool in_place = false;
  std::int64_t pad = 0;       // elements between heads, and rows
  std::int64_t misalign = 0;  // elements
  double lse_gain = 3;
  float lse_offset = 0;
  int empty_percent = 0;  // of sides, LSE −inf with any bits in out
};

/// One partial result: values and log sums.
struct State {
  Array out;
  Array lse;
};

class MergeProblem {
 public:
  MergeProblem(const Target& target, const MergeSpec& spec, Poison poison)
      : target_(target), spec_(spec), a_(side(1, poison)), b_(side(2, poison)) {
    if (!spec.in_place) result_ = make(poison);
  }

  State& a() { return a_; }
  State& b() { return b_; }

  MergeArgs args(Side where) const {
    const State& to = spec_.in_place ? a_ : result_;
    MergeArgs m;
    m.out_a = a_.out.view(where);
    m.lse_a = a_.lse.view(where);
    m.out_b = b_.out.view(where);
    m.lse_b = b_.lse.view(where);
    m.out = to.out.view(where);
    m.lse = to.lse.view(where);
    m.stream = target_.stream;
    return m;
  }

  void run(Judge& judge) {
    const State& to = spec_.in_place ? a_ : result_;
    for (const State* s : std::initializer_list<const State*>{&a_, &b_, &to}) {
      s->out.buffer().upload();
      s->lse.buffer().upload();
    }
    const auto out_before = snapshot(to.out), lse_before = snapshot(to.lse);
    target_.submit([&] { merge_states(args(Side::target)); });
    target_.synchronize();
    to.out.buffer().download();
    to.lse.buffer().download();
    judge.require(untouched_outside(to.out, out_before, spec_.tokens), "wrote outside of out");
    judge.require(untouched_outside(to.lse, lse_before, spec_.tokens), "wrote outside of lse");
  }

  Tensor out() const { return (spec_.in_place ? a_ : result_).out.view(); }
  Tensor lse() const { return (spec_.in_place ? a_ : result_).lse.view(); }

 private:
  State make(Poison poison) const {
    const std::int64_t head = head_dim + spec_.pad;
    return {Array(target_, spec_.type, {spec_.tokens, spec_.heads, head_dim}, poison,
                  {spec_.heads * head + spec_.pad, head, 1}, spec_.misalign),
            Array(target_, DType::f32, {spec_.tokens, spec_.heads}, poison,
                  {spec_.heads + spec_.pad, 1}, spec_.misalign)};
  }

  /// An empty side keeps its poison: nothing of it may be used.
  State side(std::uint64_t number, Poison poison) const {
    State s = make(poison);
    for (std::int64_t t = 0; t < spec_.tokens; ++t) {
      for (std::int64_t h = 0; h < spec_.heads; ++h) {
        const auto row = static_cast<std::uint64_t>(t * spec_.heads + h);
        Rng rng(seed_of({number, row}));
        if (rng.chance(spec_.empty_percent)) {
          f32(s.lse, t, h) = -infinity;
          continue;
        }
        const std::int64_t size = static_cast<std::int64_t>(size_of(spec_.type));
        fill_normal(spec_.type, s.out.data<std::byte>() + s.out.at(t, h) * size, head_dim,
                    rng.next());
        fill_normal(DType::f32, &f32(s.lse, t, h), 1, rng.next(), spec_.lse_gain);
        f32(s.lse, t, h) += spec_.lse_offset;
      }
    }
    return s;
  }

  const Target& target_;
  MergeSpec spec_;
  State a_, b_, result_;
};

double rounding(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-23;
}

Outcome check_merge(const Target& target, const MergeSpec& spec) {
  Judge judge;
  MergeProblem first(target, spec, Poison::nan), second(target, spec, Poison::huge);
  const auto want = reference::merge_states(first.args(Side::host));
  first.run(judge);
  second.run(judge);
  const auto out = dense_bytes(first.out()), lse = dense_bytes(first.lse());
  judge.same_bits(out.data(), dense_bytes(second.out()).data(), size_of(spec.type),
                  {spec.tokens, spec.heads, head_dim}, "out under NaN and huge poison");
  judge.same_bits(lse.data(), dense_bytes(second.lse()).data(), 4, {spec.tokens, spec.heads},
                  "lse under NaN and huge poison");
  for (std::size_t i = 0; i < want.out.size(); ++i) {
    // One rounding to the type, and weights from an exponential in f32.
    const double allowed = rounding(spec.type) * std::fabs(want.out[i]) + 1e-5;
    judge.near(load(spec.type, out.data(), static_cast<std::int64_t>(i)), want.out[i], allowed,
               "out");
  }
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    judge.near(load(DType::f32, lse.data(), static_cast<std::int64_t>(i)), want.lse[i],
               1e-4 + std::ldexp(std::fabs(want.lse[i]), -20), "lse");
  }
  return judge.outcome();
}

/// A −inf side is an exact no-op, whatever its values; both give (0, −inf).
Outcome check_empty_side(const Target& target, DType type, bool empty_a, bool empty_b,
                         bool in_place) {
  Judge judge;
  MergeSpec spec;
  spec.type = type;
  spec.in_place = in_place;
  MergeProblem p(target, spec, Poison::nan);
  const auto blank = [&](State& s) {
    for (std::int64_t t = 0; t < spec.tokens; ++t) {
      for (std::int64_t h = 0; h < spec.heads; ++h) f32(s.lse, t, h) = -infinity;
    }
    fill_poison(type, s.out.data<std::byte>(), s.out.view().numel(), Poison::nan);
  };
  if (empty_a) blank(p.a());
  if (empty_b) blank(p.b());
  State& kept = empty_a ? p.b() : p.a();
  std::vector<std::byte> out = dense_bytes(kept.out.view()), lse = dense_bytes(kept.lse.view());
  if (empty_a && empty_b) std::fill(out.begin(), out.end(), std::byte{0});
  p.run(judge);
  judge.same_bits(dense_bytes(p.out()).data(), out.data(), size_of(type),
                  {spec.tokens, spec.heads, head_dim}, "out");
  judge.same_bits(dense_bytes(p.lse()).data(), lse.data(), 4, {spec.tokens, spec.heads}, "lse");
  return judge.outcome();
}

/// NaN in a side with keys reaches that row's result, and no other.
Outcome check_nan(const Target& target, DType type, bool in_lse) {
  Judge judge;
  MergeSpec spec;
  spec.type = type;
  MergeProblem p(target, spec, Poison::huge);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (in_lse) {
    f32(p.b().lse, 3, 1) = nan;
  } else {
    store(type, p.a().out.data<std::byte>(), p.a().out.at(3, 1, 9), nan);
  }
  p.run(judge);
  const auto out = dense_bytes(p.out());
  for (std::int64_t i = 0; i < spec.tokens * spec.heads * head_dim; ++i) {
    const bool row = i / head_dim == 3 * spec.heads + 1;
    const bool expected = row && (in_lse || i % head_dim == 9);
    judge.require(std::isnan(load(type, out.data(), i)) == expected,
                  "NaN at " + coordinates(i, {spec.tokens, spec.heads, head_dim}));
  }
  const auto lse = dense_bytes(p.lse());
  for (std::int64_t i = 0; i < spec.tokens * spec.heads; ++i) {
    judge.require(
        std::isnan(load(DType::f32, lse.data(), i)) == (in_lse && i == 3 * spec.heads + 1),
        "NaN in lse");
  }
  return judge.outcome();
}

/// Rows past 2^31 elements of either side and of the result: the bits of dense rows.
Outcome check_far_rows(const Target& target, DType type) {
  Judge judge;
  const MergeSpec spec{.type = type, .empty_percent = 20};
  MergeProblem p(target, spec, Poison::nan);
  p.run(judge);
  const auto out = dense_bytes(p.out()), lse = dense_bytes(p.lse());
  const std::vector<std::int64_t> dims = {spec.tokens, spec.heads, head_dim};
  for (int which : {0, 1, 2}) {  // one at a time: a device has to hold it
    FarArrays far(target);
    MergeProblem again(target, spec, Poison::huge);
    again.run(judge);
    MergeArgs m = again.args(Side::target);
    if (which == 0) m.out_a = far.spread(again.a().out.view());
    if (which == 0) m.lse_a = far.spread(again.a().lse.view());
    if (which == 1) m.out_b = far.spread(again.b().out.view());
    if (which == 1) m.lse_b = far.spread(again.b().lse.view());
    const Array to_out(target, type, dims, Poison::nan);
    const Array to_lse(target, DType::f32, {spec.tokens, spec.heads}, Poison::nan);
    m.out = which == 2 ? far.blank(to_out.view()) : to_out.view(Side::target);
    m.lse = which == 2 ? far.blank(to_lse.view()) : to_lse.view(Side::target);
    target.submit([&] { merge_states(m); });
    target.synchronize();
    to_out.buffer().download();
    to_lse.buffer().download();
    const std::string what = std::string("far ") + (which == 0 ? "a" : which == 1 ? "b" : "result");
    judge.same_bits((which == 2 ? far.contents(m.out) : dense_bytes(to_out.view())).data(),
                    out.data(), size_of(type), dims, what + ", out");
    judge.same_bits((which == 2 ? far.contents(m.lse) : dense_bytes(to_lse.view())).data(),
                    lse.data(), sizeof(float), {spec.tokens, spec.heads}, what + ", lse");
  }
  return judge.outcome();
}

void add_shapes(std::vector<Case>& cases, DType type) {
  const std::string suffix = std::string(", ") + name(type);
  const auto add = [&](const std::string& what, const MergeSpec& spec) {
    cases.push_back({"merge_states", "grid", what + suffix,
                     [spec](const Target& t) { return check_merge(t, spec); }, false, false});
  };
  for (std::int64_t tokens : {0, 1, 7, 513}) {
    for (std::int64_t heads : {1, 4, 64}) {
      if (tokens == 513 && heads == 64) continue;
      MergeSpec s{.tokens = tokens, .heads = heads, .type = type, .empty_percent = 20};
      add(std::to_string(tokens) + " tokens, " + std::to_string(heads) + " heads", s);
    }
  }
  add("in place", {.type = type, .in_place = true, .empty_percent = 20});
  add("padded strides", {.type = type, .pad = 8});
  add("odd strides and bases", {.type = type, .pad = 1, .misalign = 1});
  add("in place, odd strides", {.type = type, .in_place = true, .pad = 3, .misalign = 1});
  add("LSE far apart", {.tokens = 64, .type = type, .lse_gain = 60});
  add("equal LSE", {.tokens = 64, .type = type, .lse_gain = 0});
  add("LSE at thousands", {.tokens = 64, .type = type, .lse_offset = 5000});
  add("LSE at minus thousands", {.tokens = 64, .type = type, .lse_offset = -5000});
}

}  // namespace

void add_merge_cases(std::vector<Case>& cases) {
  for (DType type : types) {
    add_shapes(cases, type);
    const std::string suffix = std::string(", ") + name(type);
    for (int mask = 1; mask < 4; ++mask) {
      for (bool in_place : {false, true}) {
        const bool a = (mask & 1) != 0, b = (mask & 2) != 0;
        cases.push_back({"merge_states", "grid",
                         std::string("-inf on ") +
                             (a && b ? "both sides"
                              : a    ? "side a"
                                     : "side b") +
                             (in_place ? ", in place" : "") + suffix,
                         [=](const Target& t) { return check_empty_side(t, type, a, b, in_place); },
                         false, false});
      }
    }
    cases.push_back({"merge_states", "grid",
                     std::string("report 32: rows past 2^31 elements of every array") + suffix,
                     [=](const Target& t) { return check_far_rows(t, type); }, true});
    for (bool in_lse : {false, true}) {
      cases.push_back({"merge_states", "grid",
                       std::string("NaN in ") + (in_lse ? "lse" : "out") + suffix,
                       [=](const Target& t) { return check_nan(t, type, in_lse); }, false, false});
    }
  }
}

}  // namespace msa::verify
