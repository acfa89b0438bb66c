// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "common/numeric.h"
#include "reference/reference.h"
#include "verify/attend_problem.h"

namespace msa::verify {
namespace {

/// Key-heads that a case's reference may cost; beyond it rows are sampled.
constexpr std::int64_t exact_budget = 250'000;
constexpr std::int64_t rounded_budget = 60'000;

std::vector<std::int64_t> sample_rows(const AttendProblem& problem, std::int64_t budget) {
  return verify::sample_rows(problem.rows(), problem.spec().seed, budget, [&](std::int64_t t) {
    // A tile costs something however few of its keys are visible.
    return (problem.selected_keys(t) + page_size) * problem.spec().hq;
  });
}

double out_at(const AttendProblem& problem, const AttendOutput& output, std::int64_t i) {
  return load(problem.spec().out, output.out.data(), i);
}

/// The outputs of `rows`, and the reference's.
void gather(const AttendProblem& problem, const AttendOutput& output,
            const reference::AttendResult& want, const std::vector<std::int64_t>& rows,
            std::vector<double>& a, std::vector<double>& b) {
  const std::int64_t row = problem.spec().hq * head_dim;
  for (std::int64_t t : rows) {
    for (std::int64_t i = t * row; i < (t + 1) * row; ++i) {
      a.push_back(out_at(problem, output, i));
      b.push_back(want.out[i]);
    }
  }
}

/// f16 q that a backend rounds to bf16: section 9 allows twice the error.
double q_factor(const AttendSpec& spec) {
  const bool rounds = spec.q == DType::f16 && (spec.kv == DType::bf16 || is_fp8(spec.kv));
  return rounds ? 2 : 1;
}

double lse_error(double got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(want)) return got == want ? 0 : INFINITY;
  if (!std::isfinite(got)) return INFINITY;
  return std::fabs(got - want) / (1e-4 + std::ldexp(std::fabs(want), -20));
}

void judge_lse(Judge& judge, const AttendProblem& problem, const AttendOutput& output,
               const reference::AttendResult& exact, const std::vector<std::int64_t>& rows) {
  const AttendSpec& spec = problem.spec();
  if (output.lse.empty()) return;
  std::vector<const reference::AttendResult*> allowed = {&exact};
  reference::AttendResult rounded_q;
  if (q_factor(spec) != 1) {
    rounded_q = reference::attend(problem.args(Side::host), reference::AttendMath::rounded_q, rows);
    if (spec.kv == DType::bf16) allowed.clear();  // fp8: the backend may choose f16 products
    allowed.push_back(&rounded_q);
  }
  double worst = 0;
  std::int64_t where = 0;
  for (std::int64_t t : rows) {
    for (std::int64_t i = t * spec.hq; i < (t + 1) * spec.hq; ++i) {
      double error = INFINITY;
      for (const reference::AttendResult* want : allowed) {
        error = std::min(error, lse_error(load(DType::f32, output.lse.data(), i), want->lse[i]));
      }
      if (error > worst) where = i;
      worst = std::max(worst, error);
    }
  }
  judge.at_most(worst, 1, "lse near " + coordinates(where, {problem.tokens(), spec.hq}));
}

double largest_value(const AttendProblem& problem) {
  // Unit-variance draws stay below 4.5; the gain scales them.
  return 4.5 * std::fabs(problem.spec().v_gain * problem.spec().v_scale);
}

void judge_rounded(Judge& judge, const AttendProblem& problem, const AttendOutput& output,
                   const reference::AttendResult& exact, double extra) {
  const std::vector<std::int64_t> rows = sample_rows(problem, rounded_budget);
  const auto rounded =
      reference::attend(problem.args(Side::host), reference::AttendMath::rounded, rows);
  std::vector<double> got, want, plain;
  gather(problem, output, exact, rows, got, want);
  const std::int64_t row = problem.spec().hq * head_dim;
  for (std::int64_t t : rows) {
    plain.insert(plain.end(), rounded.out.begin() + t * row, rounded.out.begin() + (t + 1) * row);
  }
  const double allowed = 2 * distance(plain, want).max_abs + extra;
  judge.at_most(distance(got, want).max_abs, allowed, "against twice rounded math's own error");
}

/// Runs the problem, which NaN surrounds, and one that huge values surround; the first one's
/// output.
AttendOutput poisoned_run(const Target& target, AttendProblem& problem, Judge& judge) {
  const AttendSpec& spec = problem.spec();
  AttendOutput first = problem.run(judge);
  AttendOutput second = AttendProblem(target, spec, Poison::huge).run(judge);
  const std::int64_t tokens = problem.tokens();
  judge.same_bits(first.out.data(), second.out.data(), 2, {tokens, spec.hq, head_dim},
                  "out under NaN and huge poison");
  judge.same_bits(first.lse.data(), second.lse.data(), 4, {spec.with_lse ? tokens : 0, spec.hq},
                  "lse under NaN and huge poison");
  return first;
}

}  // namespace

AttendOutput poisoned_run(const Target& target, const AttendSpec& spec, Judge& judge) {
  AttendProblem problem(target, spec, Poison::nan);
  return poisoned_run(target, problem, judge);
}

void judge_against_reference(Judge& judge, const AttendProblem& problem, const AttendOutput& output,
                             const AttendTolerance& tolerance) {
  if (problem.tokens() == 0) return;
  const std::vector<std::int64_t> rows = sample_rows(problem, exact_budget);
  const auto exact =
      reference::attend(problem.args(Side::host), reference::AttendMath::exact, rows);
  std::vector<double> got, want;
  gather(problem, output, exact, rows, got, want);
  const Distance d = distance(got, want);
  const double factor = q_factor(problem.spec());
  judge.require(d.same_non_finite, "NaN or infinity at another place than the reference's");
  if (tolerance.unit_variance) {
    judge.at_most(d.max_abs, factor * 1.7e-2, "max abs");
    judge.at_most(d.relative_l2, factor * 4e-3, "relative L2");
    std::vector<std::int64_t> long_rows;
    for (std::int64_t t : rows) {
      if (problem.selected_keys(t) >= 512) long_rows.push_back(t);
    }
    std::vector<double> long_got, long_want;
    gather(problem, output, exact, long_rows, long_got, long_want);
    judge.at_most(distance(long_got, long_want).mean_abs, factor * 2.5e-4, "mean abs");
  }
  judge_lse(judge, problem, output, exact, rows);
  if (tolerance.against_rounded) {
    const double extra = tolerance.unit_variance ? 1e-5 : 1e-5 * largest_value(problem);
    judge_rounded(judge, problem, output, exact, extra);
  }
}

Outcome check_attend(const Target& target, const AttendSpec& spec,
                     const AttendTolerance& tolerance) {
  Judge judge;
  AttendProblem problem(target, spec, Poison::nan);
  const AttendOutput output = poisoned_run(target, problem, judge);
  if (judge.passed()) judge_against_reference(judge, problem, output, tolerance);
  return judge.outcome();
}

std::int64_t same_rows(Judge& judge, const AttendProblem& a, const AttendOutput& out_a,
                       const AttendProblem& b, const AttendOutput& out_b, const std::string& what) {
  std::map<std::pair<std::uint64_t, std::int64_t>, std::int64_t> place;
  for (std::int64_t t = 0; t < b.tokens(); ++t) {
    if (b.rows()[t].request >= 0) place[{b.rows()[t].content, b.rows()[t].position}] = t;
  }
  const std::int64_t hq = a.spec().hq;
  const auto out_bytes = static_cast<std::size_t>(hq) * head_dim * 2;
  const auto lse_bytes = static_cast<std::size_t>(hq) * 4;
  std::int64_t compared = 0;
  for (std::int64_t t = 0; t < a.tokens(); ++t) {
    const TokenRow& row = a.rows()[t];
    const auto other = place.find({row.content, row.position});
    if (row.request < 0 || other == place.end()) continue;
    ++compared;
    const auto u = static_cast<std::size_t>(other->second), s = static_cast<std::size_t>(t);
    const std::string where = what + ", row " + std::to_string(t);
    judge.same_bits(out_a.out.data() + s * out_bytes, out_b.out.data() + u * out_bytes, 2,
                    {hq, head_dim}, where);
    if (out_a.lse.empty() || out_b.lse.empty()) continue;
    judge.same_bits(out_a.lse.data() + s * lse_bytes, out_b.lse.data() + u * lse_bytes, 4, {hq},
                    where + " lse");
  }
  return compared;
}

Outcome check_same_bits(const Target& target, const AttendSpec& a, const AttendSpec& b,
                        const std::string& what) {
  Judge judge;
  AttendProblem first(target, a, Poison::nan);
  AttendProblem second(target, b, Poison::huge);
  const AttendOutput out_a = first.run(judge);
  const AttendOutput out_b = second.run(judge);
  judge.require(same_rows(judge, first, out_a, second, out_b, what) > 0, "no row was compared");
  return judge.outcome();
}

}  // namespace msa::verify
