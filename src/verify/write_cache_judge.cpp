// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/numeric.h"
#include "reference/reference.h"
#include "verify/write_cache_problem.h"

namespace msa::verify {
namespace {

constexpr std::int64_t half_rotary = 32;

/// Distance of neighbouring values of a type at x.
double ulp(DType type, double x) {
  const FloatFormat& f = format_of(type);
  const double a = std::min(std::fabs(x), f.largest);
  const int exponent = a == 0 ? f.min_exponent() : std::max(std::ilogb(a), f.min_exponent());
  return std::ldexp(1.0, exponent - f.mantissa_bits);
}

/// What an exact value becomes where the type cannot hold it: saturated, or infinite.
double clamped(DType type, double x) {
  const FloatFormat& f = format_of(type);
  if (f.saturates) return std::clamp(x, -f.largest, f.largest);
  return std::fabs(x) < f.largest + ulp(type, f.largest) / 2 ? x : std::copysign(INFINITY, x);
}

/// Normed heads: within 1 ulp, or 2^-20 of the rotated pair's norm.
void judge_head(Judge& judge, DType type, const std::byte* got, const double* want, double scale,
                const std::string& what) {
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const bool rotated = d < 2 * half_rotary;
    const std::int64_t other = d < half_rotary ? d + half_rotary : d - half_rotary;
    const double pair = rotated ? std::hypot(want[d], want[other]) / scale : 0;
    const double exact = std::isnan(want[d]) ? want[d] : clamped(type, want[d] / scale);
    const double x = load(type, got, d);
    const double step = std::max(ulp(type, exact), ulp(type, x));
    const double allowed = std::max(step, std::isfinite(pair) ? std::ldexp(pair, -20) : 0);
    judge.near(x, exact, allowed, what + ", element " + std::to_string(d));
  }
}

/// Plain heads: the same bits where types agree and nothing is scaled; rounded once where the scale
/// is a power of two; else within 1 ulp.
void judge_plain(Judge& judge, DType from, const std::byte* input, DType to, const std::byte* got,
                 double scale, const std::string& what) {
  if (from == to && scale == 1) {
    judge.same_bits(got, input, size_of(to), {head_dim}, what);
    return;
  }
  const bool power = std::exp2(std::round(std::log2(scale))) == scale;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const double x = load(to, got, d), exact = load(from, input, d) / scale;
    std::byte rounded[4] = {};
    store(to, rounded, 0, exact);
    const double want = load(to, rounded, 0);
    const double allowed = power ? 1e-300 : std::max(ulp(to, want), ulp(to, x));
    judge.near(x, want, allowed, what + ", element " + std::to_string(d));
  }
}

std::string name_of(const char* part, std::int64_t token, std::int64_t head) {
  return std::string(part) + " of token " + std::to_string(token) + ", head " +
         std::to_string(head);
}

/// Head `i` of a dense output.
const std::byte* head_of(const std::vector<std::byte>& bytes, DType type, std::int64_t i) {
  return bytes.data() + static_cast<std::size_t>(i * head_dim) * size_of(type);
}

void judge_insert(Judge& judge, const WriteProblem& problem, const WriteOutput& out) {
  const WriteSpec& s = problem.spec();
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t h = 0; problem.in_main(t) && h < s.hkv; ++h) {
      const std::int64_t i = t * s.hkv + h;
      judge_plain(judge, s.type, problem.input(t, s.hq + h), s.kv, head_of(out.k, s.kv, i),
                  s.k_scale, name_of("k", t, h));
      judge_plain(judge, s.type, problem.input(t, s.hq + s.hkv + h), s.kv, head_of(out.v, s.kv, i),
                  s.v_scale, name_of("v", t, h));
    }
    if (problem.in_index(t)) {
      judge_plain(judge, s.type, problem.input(t, problem.heads() - 1), s.index,
                  head_of(out.index_k, s.index, t), 1, name_of("index_k", t, 0));
    }
  }
}

}  // namespace

void judge_against_reference(Judge& judge, const WriteProblem& problem, const WriteOutput& out) {
  const WriteSpec& s = problem.spec();
  if (s.insert) return judge_insert(judge, problem, out);
  const reference::WriteResult want = reference::write_cache(problem.write_args(Side::host));
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    for (std::int64_t h = 0; problem.has_position(t) && h < s.hq; ++h) {
      const std::int64_t i = t * s.hq + h;
      judge_head(judge, s.type, head_of(out.q, s.type, i), &want.q[i * head_dim], 1,
                 name_of("q", t, h));
    }
    for (std::int64_t h = 0; problem.in_main(t) && h < s.hkv; ++h) {
      const std::int64_t i = t * s.hkv + h;
      judge_head(judge, s.kv, head_of(out.k, s.kv, i), &want.k[i * head_dim], s.k_scale,
                 name_of("k", t, h));
      judge_plain(judge, s.type, problem.input(t, s.hq + s.hkv + h), s.kv, head_of(out.v, s.kv, i),
                  s.v_scale, name_of("v", t, h));
    }
    for (std::int64_t h = 0; problem.has_position(t) && h < s.hi; ++h) {
      const std::int64_t i = t * s.hi + h;
      const DType type = problem.index_q_type();
      judge_head(judge, type, head_of(out.index_q, type, i), &want.index_q[i * head_dim], 1,
                 name_of("index_q", t, h));
    }
    if (problem.in_index(t)) {
      judge_head(judge, s.index, head_of(out.index_k, s.index, t), &want.index_k[t * head_dim], 1,
                 name_of("index_k", t, 0));
    }
  }
}

namespace {

/// The token named `name` of both outputs.
void same_token(Judge& judge, const WriteProblem& a, const WriteOutput& x, std::int64_t t,
                const WriteProblem& b, const WriteOutput& y, std::int64_t u,
                const std::string& what) {
  const WriteSpec& s = a.spec();
  const auto same = [&](const std::vector<std::byte>& p, const std::vector<std::byte>& q,
                        std::int64_t heads, DType type, const char* part) {
    judge.same_bits(head_of(p, type, t * heads), head_of(q, type, u * heads), size_of(type),
                    {heads, head_dim}, what + ", " + part + " of token " + std::to_string(t));
  };
  const bool main = a.in_main(t) && b.in_main(u), index = a.in_index(t) && b.in_index(u);
  same(x.q, y.q, s.hq, s.type, "q");
  if (main) same(x.k, y.k, s.hkv, s.kv, "k");
  if (main) same(x.v, y.v, s.hkv, s.kv, "v");
  same(x.index_q, y.index_q, s.hi, a.index_q_type(), "index_q");
  if (index) same(x.index_k, y.index_k, 1, s.index, "index_k");
}

void same_tokens(Judge& judge, const WriteProblem& a, const WriteOutput& x, const WriteProblem& b,
                 const WriteOutput& y, const std::string& what) {
  std::int64_t compared = 0;
  for (std::int64_t t = 0; t < a.spec().tokens; ++t) {
    const std::int64_t u = a.spec().first_token + t - b.spec().first_token;
    if (u < 0 || u >= b.spec().tokens) continue;
    same_token(judge, a, x, t, b, y, u, what);
    ++compared;
  }
  judge.require(compared > 0 || a.spec().tokens == 0, what + ": no token in common");
}

}  // namespace

WriteOutput poisoned_run(const Target& target, const WriteSpec& spec, Judge& judge) {
  WriteProblem nan(target, spec, Poison::nan), huge(target, spec, Poison::huge);
  WriteOutput output = nan.run(judge);
  same_tokens(judge, nan, output, huge, huge.run(judge), "NaN against huge poison");
  return output;
}

Outcome check_write(const Target& target, const WriteSpec& spec) {
  Judge judge;
  const WriteOutput output = poisoned_run(target, spec, judge);
  judge_against_reference(judge, WriteProblem(target, spec, Poison::nan), output);
  return judge.outcome();
}

Outcome check_same_bits(const Target& target, const WriteSpec& a, const WriteSpec& b,
                        const std::string& what) {
  Judge judge;
  WriteProblem first(target, a, Poison::nan), second(target, b, Poison::huge);
  const WriteOutput out = first.run(judge);
  same_tokens(judge, first, out, second, second.run(judge), what);
  return judge.outcome();
}

}  // namespace msa::verify
