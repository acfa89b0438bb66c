// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/index.h"

#include <limits>

#include "api/batch.h"
#include "api/dispatch.h"

namespace msa {
namespace {

constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

constexpr DTypes query_types = {DType::bf16, DType::f16, DType::e4m3};
constexpr DTypes key_types = {DType::bf16, DType::e4m3};

void check_rule(Checker& check, const SelectRule& rule) {
  check.range("rule.init_blocks", rule.init_blocks, 0, max_int32);
  check.range("rule.local_blocks", rule.local_blocks, 0, max_int32);
}

/// The selection an indexer writes: one list per index head, or one for all.
void check_selection(Checker& check, const Tensor& selection, std::int64_t tokens,
                     std::int64_t index_heads, const SelectRule& rule) {
  const bool shape_ok = check.tensor(
      "selection", selection,
      {.dtypes = {DType::i32},
       .extents = {Extent::at_least("T", tokens), Extent::any("Hs"), Extent::any("topk")},
       .output = true,
       .touched = tokens > 0});
  if (!shape_ok) return;
  const std::int64_t wanted = rule.reduce_heads ? 1 : index_heads;
  check.require(index_heads == 0 || selection.shape[1] == wanted, "selection", "has ",
                selection.shape[1], " lists a row; allowed: ", wanted,
                rule.reduce_heads ? " with reduce_heads" : ", one an index head", " (",
                describe(selection), ")");
  check.range("selection.topk", selection.shape[2], 1, max_topk);
}

/// What index_blocks and index_scores share. Returns Hi, 0 where the shape cannot tell.
template <class Args>
std::int64_t check_inputs(Checker& check, const Args& a) {
  const std::int64_t tokens = a.batch.num_actual_tokens;
  check_batch(check, a.batch);
  const bool q_ok =
      check.tensor("index_q", a.index_q,
                   {.dtypes = query_types,
                    .extents = {Extent::at_least("T", tokens), Extent::at_least("Hi", 1),
                                Extent::exactly("128", head_dim)},
                    .dense_last = true,
                    .touched = tokens > 0});
  if (q_ok) check.range("index_q.Hi", a.index_q.shape[1], 1, max_index_heads);
  const bool cache_ok = check.tensor(
      "index_cache", a.index_cache,
      {.dtypes = key_types,
       .extents = {Extent::any("pages"), Extent::any("128"), Extent::exactly("128", head_dim)},
       .dense_last = true});
  if (cache_ok) {
    check.require(a.index_cache.shape[1] == page_size, "index_cache", "has pages of ",
                  a.index_cache.shape[1], " tokens; allowed: ", page_size,
                  ", the size of a selectable block (", describe(a.index_cache), ")");
  }
  return q_ok ? a.index_q.shape[1] : 0;
}

/// The output of index_blocks or index_scores against everything that is read.
template <class Args>
void check_placement(Checker& check, const Args& a, const Region& output) {
  check.placement(with_batch({{"index_q", a.index_q}, {"index_cache", a.index_cache}}, a.batch),
                  {output}, a.workspace);
}

void validate(Checker& check, const IndexArgs& a) {
  const std::int64_t heads = check_inputs(check, a);
  check_rule(check, a.rule);
  check_selection(check, a.selection, a.batch.num_actual_tokens, heads, a.rule);
  check_placement(check, a, {"selection", a.selection});
}

void validate(Checker& check, const IndexScoresArgs& a) {
  const std::int64_t heads = check_inputs(check, a);
  const std::int64_t tokens = a.batch.num_actual_tokens;
  check.tensor("scores", a.scores,
               {.dtypes = {DType::f32},
                .extents = {heads > 0 ? Extent::exactly("Hi", heads) : Extent::any("Hi"),
                            Extent::any("blocks"), Extent::at_least("T", tokens)},
                .output = true,
                .touched = tokens > 0});
  check_placement(check, a, {"scores", a.scores});
}

void validate(Checker& check, const SelectArgs& a) {
  check.range("num_tokens", a.num_tokens, 0, max_int32);
  const bool touched = a.num_tokens > 0;
  const bool scores_ok = check.tensor("scores", a.scores,
                                      {.dtypes = {DType::f32},
                                       .extents = {Extent::at_least("Hi", 1), Extent::any("blocks"),
                                                   Extent::at_least("T", a.num_tokens)},
                                       .touched = touched});
  if (scores_ok) {
    check.range("scores.Hi", a.scores.shape[0], 1, max_index_heads);
    check.range("scores.blocks", a.scores.shape[1], 0, max_int32);
  }
  check.tensor("valid_blocks", a.valid_blocks,
               {.dtypes = {DType::i32},
                .extents = {Extent::at_least("T", a.num_tokens)},
                .dense_last = true,
                .touched = touched});
  check_rule(check, a.rule);
  check_selection(check, a.selection, a.num_tokens, scores_ok ? a.scores.shape[0] : 0, a.rule);
  check.placement({{"scores", a.scores}, {"valid_blocks", a.valid_blocks}},
                  {{"selection", a.selection}}, a.workspace);
}

/// MSA_CHECK=1.
template <class Args>
void check_memory(Checker& check, const Args& a, HostReader& host) {
  if constexpr (requires { a.batch; }) {
    if (!host.reads(a.index_q.device)) return;
    const BatchMetadata batch = host.read(a.batch);
    check_batch_memory(check, batch);
    check_visible_cells(check, batch, a.index_cache.shape[0]);
  } else {
    if (!host.reads(a.scores.device)) return;
    const ConstTensor valid_blocks = host.read(a.valid_blocks, a.num_tokens);
    int reported = 0;
    for (std::int64_t t = 0; t < a.num_tokens; ++t) {
      const std::int64_t valid = valid_blocks.ptr<std::int32_t>()[t];
      if ((valid < 0 || valid > a.scores.shape[1]) && ++reported <= 4) {
        check.fail("valid_blocks", cat("holds ", valid, " for token ", t,
                                       "; allowed: 0 to blocks = ", a.scores.shape[1]));
      }
    }
  }
}

}  // namespace

void check_call(const IndexArgs& args) { check_call("index_blocks", args, validate, check_memory); }

void index_blocks(const IndexArgs& args) { call("index_blocks", args, validate, check_memory); }
void index_blocks(const IndexArgs& args, WorkspaceSource& source) {
  call<IndexArgs>("index_blocks", args, source, validate, check_memory);
}
void index_blocks(Checker& check, const IndexArgs& args) {
  check_arguments<IndexArgs>(check, "index_blocks", args, validate, check_memory);
  dispatch("index_blocks", args);
}
void index_scores(const IndexScoresArgs& args) {
  call("index_scores", args, validate, check_memory);
}
void index_scores(const IndexScoresArgs& args, WorkspaceSource& source) {
  call<IndexScoresArgs>("index_scores", args, source, validate, check_memory);
}
void select_blocks(const SelectArgs& args) { call("select_blocks", args, validate, check_memory); }
void select_blocks(const SelectArgs& args, WorkspaceSource& source) {
  call<SelectArgs>("select_blocks", args, source, validate, check_memory);
}

std::size_t workspace_size(const IndexArgs& args) { return query("index_blocks", args, validate); }
std::size_t workspace_size(Checker& check, const IndexArgs& args) {
  return query(check, "index_blocks", args, validate);
}
std::size_t workspace_size(const IndexScoresArgs& args) {
  return query("index_scores", args, validate);
}
std::size_t workspace_size(const SelectArgs& args) {
  return query("select_blocks", args, validate);
}

}  // namespace msa
