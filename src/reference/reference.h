// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "msa/attend.h"
#include "msa/copy_pages.h"
#include "msa/index.h"
#include "msa/merge.h"
#include "msa/write_cache.h"

/// \file
/// What each operator means, in f64 loops: the oracle of every backend. One file an operator.

namespace msa::reference {

/// Where request `r` of the batch starts and ends in the token rows, and where its first row sits.
struct RequestRows {
  std::int64_t begin = 0;           // first token row
  std::int64_t end = 0;             // one past the last
  std::int64_t first_position = 0;  // of row `begin`; may be negative in decode
  std::int64_t seq_len = 0;
};
RequestRows request_rows(const BatchMetadata& batch, std::int64_t request);

/// What one token row belongs to.
struct Row {
  std::int64_t request = -1;   // −1: covered by no request
  std::int64_t position = -1;  // sees max(position + 1, 0) keys
  std::int64_t seq_len = 0;    // of its request
};
/// All rows t < T.
std::vector<Row> token_rows(const BatchMetadata& batch);

/// Physical page in the table's cell; −1 where the cell does not exist or names none of `pages`
/// pages.
std::int64_t table_entry(const BatchMetadata& batch, std::int64_t request, std::int64_t column,
                         std::int64_t pages);

/// f64 results of attend: out `[T, Hq, 128]`, lse `[T, Hq]`, dense.
struct AttendResult {
  std::vector<double> out;
  std::vector<double> lse;
};
/// How the reference rounds. `exact`: f64 throughout. `rounded`: q and P rounded to the product
/// type and the result to out's type, everything else f64: the "plain computation with the same
/// roundings" of the contract's section 9. `rounded_q`: only q is rounded (the contract's LSE
/// reference where f16 q meets a bf16 cache).
enum class AttendMath { exact, rounded, rounded_q };
/// `rows`: which token rows to compute; empty = all. Rows not asked for stay empty rows.
AttendResult attend(const AttendArgs& args, AttendMath math = AttendMath::exact,
                    const std::vector<std::int64_t>& rows = {});

/// f64 scores `[Hi, blocks, T]`, dense; −inf where nothing is visible.
std::vector<double> index_scores(const IndexScoresArgs& args,
                                 const std::vector<std::int64_t>& rows = {});
/// Ids `[T, Hs, topk]` chosen from f64 scores `[Hi, blocks, T]`.
std::vector<std::int32_t> select_blocks(const std::vector<double>& scores, std::int64_t heads,
                                        std::int64_t blocks, std::int64_t tokens,
                                        const std::vector<std::int32_t>& valid_blocks,
                                        std::int64_t topk, const SelectRule& rule);
/// valid_blocks of every token row of a batch: position / 128 + 1, or 0.
std::vector<std::int32_t> valid_blocks(const BatchMetadata& batch);

/// f64 outputs of write_cache, dense; nothing is written to the caches.
struct WriteResult {
  std::vector<double> q;        // [T, Hq, 128], not rounded
  std::vector<double> k;        // [T, Hkv, 128], before division by the scale
  std::vector<double> v;        // [T, Hkv, 128]
  std::vector<double> index_q;  // [T, Hi, 128]
  std::vector<double> index_k;  // [T, 128]
};
WriteResult write_cache(const WriteCacheArgs& args);

/// f64 merge: out `[T, H, 128]`, lse `[T, H]`, dense.
AttendResult merge_states(const MergeArgs& args);

}  // namespace msa::reference
