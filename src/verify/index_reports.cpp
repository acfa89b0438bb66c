// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "common/numeric.h"
#include "msa/error.h"
#include "verify/index_problem.h"

/// \file
/// Field reports about indexers that the other groups do not meet by themselves. Their numbers are
/// those of the project's list of faults seen elsewhere.

namespace msa::verify {
namespace {

void add(std::vector<Case>& cases, const std::string& name,
         std::function<Outcome(const Target&)> run) {
  cases.push_back({"index_blocks", "reports", name, std::move(run)});
}

void add_check(std::vector<Case>& cases, const std::string& name, const IndexSpec& spec) {
  add(cases, name, [spec](const Target& t) { return check_index(t, spec); });
}

/// 1: a token-major and a head-major buffer of the same shape hold the same lists.
void add_layouts(std::vector<Case>& cases) {
  struct Shape {
    std::int64_t tokens;
    std::int64_t heads;
  };
  for (const Shape& shape : {Shape{4, 4}, Shape{1, 4}, Shape{5, 1}, Shape{7, 2}}) {
    IndexSpec s;
    s.heads = shape.heads;
    s.topk = 4;
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      s.batch.decodes.push_back({1, 1200 + 130 * t, static_cast<std::uint64_t>(t + 1)});
    }
    s.spare_rows = 0;
    IndexSpec head_major = s;
    head_major.head_major = true;
    add(cases,
        "report 1: head-major selection of " + std::to_string(shape.tokens) + " tokens, " +
            std::to_string(shape.heads) + " heads",
        [s, head_major](const Target& t) { return check_same_bits(t, s, head_major, "layout"); });
  }
}

/// 13: blocks past the table's width, and two runs with different poison in the last page's tail.
void add_tails(std::vector<Case>& cases) {
  for (std::int64_t tail : {1, 63, 64, 65, 127}) {
    IndexSpec s;
    s.topk = 4;
    s.k = tail % 2 == 0 ? DType::e4m3 : DType::bf16;
    s.batch.decodes = requests({tail, 1024 + tail, 512 + tail});
    s.batch.prefills = prefills({tail}, {900 + tail});
    add_check(cases, "reports 13 and 22: last page with " + std::to_string(tail) + " keys", s);
  }
}

/// 15 and 18: pages of another size than a block are refused, in words.
Outcome check_page_size(const Target& target, std::int64_t page_tokens) {
  Judge judge;
  IndexSpec s;
  s.batch.decodes = requests({700});
  IndexProblem problem(target, s, Poison::nan);
  try {
    problem.run(judge, [&](IndexArgs& a) { a.index_cache.shape[1] = page_tokens; });
    judge.require(false, "pages of " + std::to_string(page_tokens) + " tokens were accepted");
  } catch (const Error& e) {
    const std::string text = e.what();
    judge.require(text.find(std::to_string(page_tokens)) != std::string::npos &&
                      text.find("128") != std::string::npos &&
                      text.find("index_cache") != std::string::npos,
                  "the error does not name both sizes: " + text);
  }
  return judge.outcome();
}

/// 42, 44 and 46: padding rows of a larger captured batch, their table rows stale or −1.
void add_padding(std::vector<Case>& cases) {
  for (std::int64_t m : {1, 4}) {
    for (std::int64_t keys : {0, 1}) {
      IndexSpec s;
      s.topk = 4;
      s.batch.m = m;
      s.batch.decodes = requests({700, 1500, 130, 900, 2000});
      for (std::uint64_t i = 0; i < 3; ++i) s.batch.decodes.push_back({1, keys, 50 + i});
      s.garbage_cells = keys == 1;
      add_check(cases,
                "reports 42 and 44: padding requests of length " + std::to_string(keys) + ", m " +
                    std::to_string(m),
                s);
    }
  }
  IndexSpec ragged;
  ragged.topk = 4;
  ragged.batch.m = 3;
  ragged.batch.decodes = requests({0, 5, 0, 129, 2, 1});
  add_check(cases, "report 51: lengths 0, 5, 0, 129", ragged);
}

/// 56: a prefix-cache hit in the middle of a block and at its edge.
void add_prefixes(std::vector<Case>& cases) {
  for (std::int64_t prefix : {1000, 1024}) {
    IndexSpec s;
    s.topk = 4;
    s.batch.prefills = {{7, prefix + 7, 3}};
    add_check(cases, "report 56: 7 tokens after a prefix of " + std::to_string(prefix), s);
  }
}

/// 59: the workspace respects its cap for any context, and where a list holds every block, every
/// block is chosen.
Outcome check_workspace(const Target& target) {
  Judge judge;
  IndexSpec s;
  s.batch.prefills = prefills({40}, {40});
  IndexProblem problem(target, s, Poison::nan);
  IndexArgs args = problem.args(Side::target);
  args.batch.num_actual_tokens = args.batch.max_query_len = 32768;
  args.batch.max_seq_len = 1 << 20;
  args.index_q = ConstTensor::dense(nullptr, DType::bf16, {32768, 4, head_dim}, target.device);
  args.selection = Tensor::dense(nullptr, DType::i32, {32768, 4, 16}, target.device);
  for (std::size_t cap : {default_workspace_cap, std::size_t{8} << 20, std::size_t{1} << 12}) {
    args.workspace_cap = cap;
    const std::size_t bytes = workspace_size(args);
    judge.require(bytes <= cap, "32,768 tokens at 1M keys ask for " + std::to_string(bytes) +
                                    " bytes, cap " + std::to_string(cap));
  }
  return judge.outcome();
}

Outcome check_dense(const Target& target) {
  Judge judge;
  IndexSpec s;
  s.batch.prefills = prefills({2048}, {2048});
  IndexProblem problem(target, s, Poison::nan);
  const IndexOutput output = problem.run(judge);
  const std::int64_t lists = problem.lists();
  for (std::int64_t i = 0; i < problem.tokens() * lists; ++i) {
    const std::int64_t valid = i / lists / page_size + 1;
    for (std::int64_t k = 0; k < s.topk; ++k) {
      const std::int64_t id = output.ids[i * s.topk + k];
      judge.require(id == (k < valid ? k : -1), "list " + std::to_string(i) + " holds " +
                                                    std::to_string(id) + " at " +
                                                    std::to_string(k));
    }
  }
  return judge.outcome();
}

/// 84: an index cache that was never transferred: zeros, or stale keys for a part of the context.
void add_lost_cache(std::vector<Case>& cases) {
  for (DType k : {DType::bf16, DType::e4m3}) {
    IndexSpec s;
    s.k = k;
    s.batch.decodes = requests({5000, 2300});
    s.batch.prefills = prefills({20}, {4000});
    s.values = IndexValues::integers;
    const std::size_t bytes = size_of(k) * page_size * head_dim;
    s.edit_keys = [bytes](std::uint64_t, std::int64_t, void* keys) {
      std::fill_n(static_cast<char*>(keys), bytes, char{0});
    };
    add_check(cases, std::string("report 84: index keys all 0, k ") + name(k), s);
    s.edit_keys = [bytes](std::uint64_t, std::int64_t block, void* keys) {
      if (block % 4 != 0) std::fill_n(static_cast<char*>(keys), bytes, char{0});
    };
    add_check(cases, std::string("report 84: index keys partly 0, k ") + name(k), s);
  }
}

}  // namespace

void add_index_reports(std::vector<Case>& cases) {
  add_layouts(cases);
  add_tails(cases);
  for (std::int64_t tokens : {1, 16, 64, 256}) {
    add(cases, "reports 15 and 18: pages of " + std::to_string(tokens) + " tokens",
        [tokens](const Target& t) { return check_page_size(t, tokens); });
  }
  add_padding(cases);
  add_prefixes(cases);
  add(cases, "report 59: workspace of 32,768 tokens at a context of 1M", check_workspace);
  add(cases, "report 59: a context of topk blocks is dense", check_dense);
  add_lost_cache(cases);
  // 73: the shards of 4 index heads.
  for (std::int64_t heads : {1, 2, 4}) {
    IndexSpec s;
    s.heads = heads;
    s.batch.decodes = requests({2049, 2500});
    s.batch.prefills = prefills({10}, {2600});
    add_check(cases, "report 73: shard of " + std::to_string(heads) + " index heads", s);
  }
}

}  // namespace msa::verify
