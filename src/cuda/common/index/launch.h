// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/params.h"
#include "msa/types.h"

/// \file
/// Host side of the kernels that every backend's indexer has.

namespace msa::cuda {

/// Whose launch it is, and where.
struct Origin {
  const char* op;
  int device;
  Stream stream;
};

/// What a launch of a score kernel is for.
enum class Output {
  scores,  // of the window's rows
  lists,   // of all rows of the call, without a workspace
};

/// Lists from scores.
void launch_select(const SelectParams& p, const Origin& origin);

/// −inf for the blocks that a row does not see.
void launch_fill(const FillParams& p, const Origin& origin);

}  // namespace msa::cuda
