// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "msa/index.h"
#include "verify/compare.h"
#include "verify/inputs.h"
#include "verify/memory.h"

/// \file
/// One indexer call made from a description: inputs, poison around them, the call, and what it
/// wrote. Each run calls index_blocks, index_scores and select_blocks: the ids of the first must be
/// those that the last finds in the scores of the second.

namespace msa::verify {

/// What queries and keys hold before an edit.
enum class IndexValues {
  normal,    // unit variance
  integers,  // small whole numbers: every score is exact in f32 in any order
  equal,     // ones: all scores are 128
};

struct IndexSpec {
  std::int64_t heads = 4;
  std::int64_t topk = 16;
  SelectRule rule;
  BatchSpec batch;
  DType q = DType::bf16;
  DType k = DType::bf16;
  bool exact = false;
  IndexValues values = IndexValues::normal;

  std::int64_t misalign = 0;    // elements; every base pointer
  std::int64_t head_pad = 0;    // elements between heads of index_q
  std::int64_t token_pad = 0;   // elements between tokens of the cache
  std::int64_t page_pad = 0;    // elements between pages
  bool head_major = false;      // the selection as [Hs, T, topk], seen token-major
  bool tokens_outside = false;  // scores as [T, blocks, Hi], seen as [Hi, blocks, T]
  std::int64_t spare_rows = 2;  // rows ≥ T
  std::int64_t spare_pages = 2;
  std::int64_t first_page = 0;    // > 0: page ids start here, in a sparse reservation
  bool garbage_cells = false;     // some needed table cells name no page
  std::int64_t spare_blocks = 1;  // of the scores' extent, beyond the longest request; may be < 0
  std::size_t workspace_cap = default_workspace_cap;

  std::uint64_t seed = 1;
  std::uint64_t page_seed = 1;  // where pages lie
  double gain = 1;              // of queries and of keys
  /// Changes the 128 elements of index_q of (content, position, head).
  std::function<void(std::uint64_t, std::int64_t, std::int64_t, void*)> edit_q;
  /// Changes the 128 · 128 elements of the keys of (content, block).
  std::function<void(std::uint64_t, std::int64_t, void*)> edit_keys;
};

/// What a run wrote to rows t < T, dense.
struct IndexOutput {
  std::vector<std::int32_t> ids;  // [T, Hs, topk]
  std::vector<float> scores;      // [Hi, blocks, T]
};

class IndexProblem {
 public:
  IndexProblem(const Target& target, const IndexSpec& spec, Poison poison);

  const IndexSpec& spec() const { return spec_; }
  const std::vector<TokenRow>& rows() const { return rows_; }
  std::int64_t tokens() const { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t lists() const { return spec_.rule.reduce_heads ? 1 : spec_.heads; }
  std::int64_t blocks() const { return scores_.view().shape[1]; }
  std::int64_t visible(std::int64_t row) const;
  const Array& q() const { return q_; }
  const Array& table() const { return batch_.table(); }
  const Array& valid_blocks() const { return valid_; }

  IndexArgs args(Side side) const;
  IndexScoresArgs scores_args(Side side) const;
  /// index_scores of what an index_blocks call reads.
  IndexScoresArgs scores_args(const IndexArgs& args, Side side) const;
  /// Calls the operators, with arguments that `change` may still alter; what is not a row's own
  /// must stay untouched.
  IndexOutput run(Judge& judge, const std::function<void(IndexArgs&)>& change = {});

 private:
  using Block = std::pair<std::uint64_t, std::int64_t>;  // content, block

  void place_pages();
  void fill_table(Poison poison);
  void make_cache(Poison poison);
  void fill_page(const Block& block, std::int64_t page);
  void fill_queries();
  void fill(DType type, void* to, std::int64_t n, std::uint64_t seed) const;
  std::byte* token_row(std::int64_t page, std::int64_t token) const;
  void upload();

  const Target& target_;
  IndexSpec spec_;
  std::vector<TokenRow> rows_;
  BatchArrays batch_;
  Array q_, selection_, again_, scores_, valid_, workspace_;
  std::map<Block, std::int64_t> pages_;
  std::map<std::uint64_t, std::int64_t> keys_of_;  // largest seq_len of a content
  std::int64_t poison_page_ = 0;                   // past the last block of every request
  std::int64_t pool_ = 0;
  std::unique_ptr<Buffer> memory_;
  Tensor cache_;  // host view
};

/// Runs with NaN, then with huge poison; both must give the same bits.
IndexOutput poisoned_run(const Target& target, const IndexSpec& spec, Judge& judge);
/// Scores of sampled rows against the reference by section 9; ids of all rows against the scores.
void judge_against_reference(Judge& judge, const IndexProblem& problem, const IndexOutput& output);
/// The usual case: poisoned_run and judge_against_reference.
Outcome check_index(const Target& target, const IndexSpec& spec);

/// Rows of `a` and `b` of the same kind (decode or prefill), content and position must have the
/// same ids and scores. Returns how many rows were compared.
std::int64_t same_rows(Judge& judge, const IndexProblem& a, const IndexOutput& out_a,
                       const IndexProblem& b, const IndexOutput& out_b, const std::string& what);
/// Runs both specs and compares all rows that they share (at least one must be).
Outcome check_same_bits(const Target& target, const IndexSpec& a, const IndexSpec& b,
                        const std::string& what);

/// Parts of the table, one source each.
void add_index_grid(std::vector<Case>& cases);
void add_index_values(std::vector<Case>& cases);
void add_index_bits(std::vector<Case>& cases);
void add_index_memory(std::vector<Case>& cases);
void add_index_reports(std::vector<Case>& cases);
void add_index_select(std::vector<Case>& cases);

}  // namespace msa::verify
