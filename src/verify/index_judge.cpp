// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <tuple>

#include "reference/decode.h"
#include "reference/reference.h"
#include "verify/index_problem.h"

namespace msa::verify {
namespace {

/// Key-heads that a case's reference may cost; beyond it rows are sampled.
constexpr std::int64_t budget = 60'000;

std::vector<std::int64_t> sample_rows(const IndexProblem& problem) {
  return verify::sample_rows(problem.rows(), problem.spec().seed, budget, [&](std::int64_t t) {
    return (problem.visible(t) + 1) * problem.spec().heads;
  });
}

/// The largest Σ_d |q_d · k_d| over the block's visible keys: what section 4 bounds fast fp8 by.
double largest_magnitude(const IndexScoresArgs& args, std::int64_t head, std::int64_t token,
                         const reference::Row& row, std::int64_t block) {
  const ConstTensor &q = args.index_q, &cache = args.index_cache;
  const std::int64_t page = reference::table_entry(args.batch, row.request, block, cache.shape[0]);
  const std::int64_t keys = std::min<std::int64_t>(row.position + 1 - block * page_size, page_size);
  std::vector<double> x(head_dim), y(head_dim);
  reference::load_row(q, token * q.stride[0] + head * q.stride[1], head_dim, x.data());
  double largest = 0;
  for (std::int64_t j = 0; page >= 0 && j < keys; ++j) {
    reference::load_row(cache, page * cache.stride[0] + j * cache.stride[1], head_dim, y.data());
    double sum = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) sum += std::fabs(x[d] * y[d]);
    largest = std::max(largest, sum);
  }
  return largest;
}

void judge_scores(Judge& judge, const IndexProblem& problem, const IndexOutput& output) {
  const IndexSpec& spec = problem.spec();
  const IndexScoresArgs args = problem.scores_args(Side::host);
  const std::vector<std::int64_t> rows = sample_rows(problem);
  const std::vector<double> want = reference::index_scores(args, rows);
  const std::vector<reference::Row> token_rows = reference::token_rows(args.batch);
  const bool fast_fp8 = spec.q == DType::e4m3 && spec.k == DType::e4m3 && !spec.exact;
  const std::int64_t blocks = problem.blocks(), tokens = problem.tokens();
  for (std::int64_t h = 0; h < spec.heads; ++h) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t t : rows) {
        const std::int64_t at = (h * blocks + b) * tokens + t;
        const auto what = [&] { return "score " + coordinates(at, {spec.heads, blocks, tokens}); };
        if (!std::isfinite(want[at]) || spec.values != IndexValues::normal) {
          const bool same =
              std::isnan(want[at]) ? std::isnan(output.scores[at]) : output.scores[at] == want[at];
          if (!same) judge.near(output.scores[at], want[at], 1e-30, what());
          continue;
        }
        const double allowed =
            fast_fp8 ? std::ldexp(largest_magnitude(args, h, t, token_rows[t], b), -10) + 1e-30
                     : 1e-2 * spec.gain * spec.gain;
        judge.near(output.scores[at], want[at], allowed, what());
      }
    }
  }
}

using RowName = std::tuple<bool, std::uint64_t, std::int64_t>;  // decode, content, position

RowName name_of(const IndexProblem& problem, std::int64_t t) {
  const TokenRow& row = problem.rows()[t];
  const auto decodes = static_cast<std::int64_t>(problem.spec().batch.decodes.size());
  return {row.request < decodes, row.content, row.position};
}

}  // namespace

void judge_against_reference(Judge& judge, const IndexProblem& problem, const IndexOutput& output) {
  const IndexSpec& spec = problem.spec();
  const std::int64_t tokens = problem.tokens();
  judge_scores(judge, problem, output);
  if (spec.spare_blocks < 0) return;  // the scores lack blocks that the ids may name
  const std::vector<double> scores(output.scores.begin(), output.scores.end());
  const std::vector<std::int32_t> ids = reference::select_blocks(
      scores, spec.heads, problem.blocks(), tokens,
      reference::valid_blocks(problem.args(Side::host).batch), spec.topk, spec.rule);
  judge.same_bits(output.ids.data(), ids.data(), sizeof(std::int32_t),
                  {tokens, problem.lists(), spec.topk}, "ids against the reference's choice");
}

IndexOutput poisoned_run(const Target& target, const IndexSpec& spec, Judge& judge) {
  IndexProblem nan(target, spec, Poison::nan), huge(target, spec, Poison::huge);
  IndexOutput output = nan.run(judge);
  same_rows(judge, nan, output, huge, huge.run(judge), "NaN against huge poison");
  return output;
}

Outcome check_index(const Target& target, const IndexSpec& spec) {
  Judge judge;
  const IndexOutput output = poisoned_run(target, spec, judge);
  judge_against_reference(judge, IndexProblem(target, spec, Poison::nan), output);
  return judge.outcome();
}

std::int64_t same_rows(Judge& judge, const IndexProblem& a, const IndexOutput& out_a,
                       const IndexProblem& b, const IndexOutput& out_b, const std::string& what) {
  std::map<RowName, std::int64_t> rows;
  for (std::int64_t t = 0; t < a.tokens(); ++t) {
    if (a.rows()[t].request >= 0) rows[name_of(a, t)] = t;
  }
  std::int64_t compared = 0;
  const std::int64_t ids = a.lists() * a.spec().topk;
  for (std::int64_t u = 0; u < b.tokens(); ++u) {
    const auto match = rows.find(name_of(b, u));
    if (b.rows()[u].request < 0 || match == rows.end()) continue;
    const std::int64_t t = match->second;
    ++compared;
    const std::string row = what + ", row " + std::to_string(t) + " as row " + std::to_string(u);
    judge.same_bits(out_a.ids.data() + t * ids, out_b.ids.data() + u * ids, sizeof(std::int32_t),
                    {a.lists(), a.spec().topk}, row + ", ids");
    for (std::int64_t h = 0; h < a.spec().heads; ++h) {
      for (std::int64_t block = 0; block < std::min(a.blocks(), b.blocks()); ++block) {
        const float x = out_a.scores[(h * a.blocks() + block) * a.tokens() + t];
        const float y = out_b.scores[(h * b.blocks() + block) * b.tokens() + u];
        if (std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y)) continue;
        judge.require(false, row + ", score of head " + std::to_string(h) + ", block " +
                                 std::to_string(block) + ": " + std::to_string(x) + " and " +
                                 std::to_string(y));
      }
    }
  }
  return compared;
}

Outcome check_same_bits(const Target& target, const IndexSpec& a, const IndexSpec& b,
                        const std::string& what) {
  Judge judge;
  IndexProblem first(target, a, Poison::nan), second(target, b, Poison::huge);
  const IndexOutput out = first.run(judge), other = second.run(judge);
  const auto backend = [&](const IndexProblem& problem) {
    return expected_backend(target, {problem.args(Side::target).index_cache});
  };
  if (backend(first) != backend(second)) {
    // Where a cache lies may decide who serves a call; another backend has other bits.
    judge_against_reference(judge, second, other);
    return judge.outcome();
  }
  const std::int64_t compared = same_rows(judge, first, out, second, other, what);
  judge.require(compared > 0, what + ": no row in common");
  return judge.outcome();
}

}  // namespace msa::verify
