// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "msa/export.h"
#include "msa/metadata.h"
#include "msa/tensor.h"

/// \file
/// The indexer: which blocks each row attends to.

namespace msa {

/// How blocks are chosen from scores. Order of preference: forced blocks (the row's own block
/// downwards, `local_blocks` of them; then blocks 0 upwards, `init_blocks` of them), then scores
/// from +inf to −inf, then NaN; −0 = +0; ties to the lower id.
struct SelectRule {
  std::int64_t init_blocks = 0;   ///< ≥ 0
  std::int64_t local_blocks = 1;  ///< ≥ 0
  bool reduce_heads = false;      ///< true: Hs = 1, by the largest score of all index heads
};

/// Arguments of index_blocks. `batch.block_table` is the **index** cache's table.
struct IndexArgs {
  ConstTensor index_q;      // [≥ T, Hi, 128] bf16|f16|e4m3, last stride 1; Hi 1 to 16
  ConstTensor index_cache;  // [pages, 128, 128] bf16|e4m3, any page and token stride, last 1
  BatchMetadata batch;      // of the step, with the index cache's table
  Tensor selection;         // [≥ T, Hs, topk] i32, any strides; Hs = Hi, or 1 with reduce_heads

  SelectRule rule;     ///< how blocks are chosen
  bool exact = false;  ///< fp8 × fp8: exact products and f32 sums instead of the fast accumulator

  std::size_t workspace_cap = default_workspace_cap;  ///< the call never asks for more, bytes
  Workspace workspace;                                // ≥ workspace_size(args) bytes
  Stream stream;                                      ///< where the call runs
};

/// For each row t < T and list h: the min(topk, valid_blocks) best blocks of
/// `score[h, t, b] = max over visible keys j of block b of dot(index_q[t, h], index_k[j])`,
/// in ascending order, then −1. valid_blocks = position / 128 + 1, 0 for an empty row.
/// A block whose table entry lies outside the cache scores −inf.
///
/// \throws Error listing every argument that is wrong; nothing is written then.
/// Source: contract section 4.
MSA_API void index_blocks(const IndexArgs& args);
/// Bytes of workspace that `index_blocks(args)` needs; see `workspace_size(const AttendArgs&)`.
MSA_API std::size_t workspace_size(const IndexArgs& args);

/// Arguments of index_scores: the same pass, scores kept.
struct IndexScoresArgs {
  ConstTensor index_q;      // [≥ T, Hi, 128] bf16|f16|e4m3
  ConstTensor index_cache;  // [pages, 128, 128] bf16|e4m3
  BatchMetadata batch;      // of the step, with the index cache's table
  Tensor scores;            // [Hi, blocks, ≥ T] f32, any strides; columns ≥ T are not touched
  bool exact = false;       ///< as in IndexArgs

  std::size_t workspace_cap = default_workspace_cap;  ///< the call never asks for more, bytes
  Workspace workspace;                                // ≥ workspace_size(args) bytes
  Stream stream;                                      ///< where the call runs
};

/// Writes score[h, b, t] for all b < blocks and t < T: −inf where no key of block b is visible to
/// row t. Blocks past the buffer's extent are not computed.
MSA_API void index_scores(const IndexScoresArgs& args);
/// Bytes of workspace that `index_scores(args)` needs; see `workspace_size(const AttendArgs&)`.
MSA_API std::size_t workspace_size(const IndexScoresArgs& args);

/// Arguments of select_blocks: the choice alone, from scores of any origin.
struct SelectArgs {
  ConstTensor scores;           // [Hi, blocks, ≥ T] f32, any strides
  ConstTensor valid_blocks;     // [≥ T] i32, clamped to [0, blocks]
  Tensor selection;             // [≥ T, Hs, topk] i32, any strides
  std::int64_t num_tokens = 0;  ///< T
  SelectRule rule;              ///< how blocks are chosen

  std::size_t workspace_cap = default_workspace_cap;  ///< the call never asks for more, bytes
  Workspace workspace;                                // ≥ workspace_size(args) bytes
  Stream stream;                                      ///< where the call runs
};

/// The rule of index_blocks applied to given scores.
MSA_API void select_blocks(const SelectArgs& args);
/// Bytes of workspace that `select_blocks(args)` needs; see `workspace_size(const AttendArgs&)`.
MSA_API std::size_t workspace_size(const SelectArgs& args);

}  // namespace msa
