// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/decode.h"
#include "reference/reference.h"

namespace msa::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One block's score for one query: the largest product, or NaN if any is.
double block_score(const std::vector<double>& q, const std::vector<double>& keys,
                   std::int64_t visible) {
  double best = -infinity;
  for (std::int64_t j = 0; j < visible; ++j) {
    double dot = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) dot += q[d] * keys[j * head_dim + d];
    if (std::isnan(dot)) return dot;
    best = std::max(best, dot);
  }
  return best;
}

/// Rank of block `b` among forced blocks, lowest first; −1 for a block that is not forced.
std::int64_t forced_rank(std::int64_t b, std::int64_t valid, const SelectRule& rule) {
  if (b >= valid - rule.local_blocks) return valid - 1 - b;
  if (b < rule.init_blocks) return rule.local_blocks + b;
  return -1;
}

}  // namespace

std::vector<double> index_scores(const IndexScoresArgs& args,
                                 const std::vector<std::int64_t>& rows) {
  const ConstTensor &q = args.index_q, &cache = args.index_cache;
  const std::int64_t heads = q.shape[1], blocks = args.scores.shape[1];
  const std::int64_t tokens = args.batch.num_actual_tokens;
  std::vector<double> scores(heads * blocks * tokens, -infinity);
  std::vector<std::int64_t> wanted = rows;
  if (rows.empty()) {
    wanted.resize(tokens);
    std::iota(wanted.begin(), wanted.end(), 0);
  }
  const std::vector<Row> all = token_rows(args.batch);
  std::vector<double> q_row(head_dim), keys(std::size_t{page_size} * head_dim);
  for (std::int64_t t : wanted) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t visible =
          std::min<std::int64_t>(all[t].position + 1 - b * page_size, page_size);
      if (all[t].request < 0 || visible <= 0) break;
      const std::int64_t page = table_entry(args.batch, all[t].request, b, cache.shape[0]);
      if (page < 0) continue;
      for (std::int64_t j = 0; j < visible; ++j) {
        load_row(cache, page * cache.stride[0] + j * cache.stride[1], head_dim,
                 keys.data() + j * head_dim);
      }
      for (std::int64_t h = 0; h < heads; ++h) {
        load_row(q, t * q.stride[0] + h * q.stride[1], head_dim, q_row.data());
        scores[(h * blocks + b) * tokens + t] = block_score(q_row, keys, visible);
      }
    }
  }
  return scores;
}

std::vector<std::int32_t> select_blocks(const std::vector<double>& scores, std::int64_t heads,
                                        std::int64_t blocks, std::int64_t tokens,
                                        const std::vector<std::int32_t>& valid_blocks,
                                        std::int64_t topk, const SelectRule& rule) {
  const std::int64_t lists = rule.reduce_heads ? 1 : heads;
  std::vector<std::int32_t> ids(tokens * lists * topk, -1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t valid = std::clamp<std::int64_t>(valid_blocks[t], 0, blocks);
    for (std::int64_t list = 0; list < lists; ++list) {
      std::vector<double> score(valid);
      for (std::int64_t b = 0; b < valid; ++b) {
        score[b] = scores[(list * blocks + b) * tokens + t];
        for (std::int64_t h = 1; rule.reduce_heads && h < heads; ++h) {
          const double other = scores[(h * blocks + b) * tokens + t];
          if (std::isnan(other) || other > score[b]) score[b] = other;
          if (std::isnan(other)) break;
        }
      }
      std::vector<std::int32_t> order(valid);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const std::int64_t fa = forced_rank(a, valid, rule), fb = forced_rank(b, valid, rule);
        if (fa >= 0 || fb >= 0) return fa >= 0 && (fb < 0 || fa < fb);
        const bool na = std::isnan(score[a]), nb = std::isnan(score[b]);
        if (na != nb) return nb;
        if (!na && score[a] != score[b]) return score[a] > score[b];
        return a < b;
      });
      order.resize(std::min(topk, valid));
      std::sort(order.begin(), order.end());
      std::copy(order.begin(), order.end(), ids.begin() + (t * lists + list) * topk);
    }
  }
  return ids;
}

}  // namespace msa::reference
