// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/index/params.h"
#include "msa/types.h"

/// \file
/// Host side of the indexer's kernels, one function a source.

namespace msa::cuda::sm90::index {

/// Whose launch it is, and where.
struct Origin {
  const char* op;
  int device;
  Stream stream;
};

/// What a launch of the score kernel is for.
enum class Output {
  scores,  // of the window's rows
  lists,   // of all rows of the call, without a workspace
};

/// bf16 keys by queries that bf16 holds, and by f16 queries.
void launch_bf16(const ScoreParams& p, Output output, const Origin& origin);
void launch_split(const ScoreParams& p, Output output, const Origin& origin);
/// e4m3 by e4m3 in the tensor cores' own accumulator.
void launch_e4m3(const ScoreParams& p, Output output, const Origin& origin);
/// e4m3 widened to f16.
void launch_widened(const ScoreParams& p, Output output, const Origin& origin);

void launch_select(const SelectParams& p, const Origin& origin);

/// −inf for the blocks that a row does not see.
void launch_fill(const ScoreParams& p, const Origin& origin);

}  // namespace msa::cuda::sm90::index
