// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"

/// \file
/// The indexer on SM90: two kernels, one that scores and one that selects.

namespace msa::cuda::sm90::index {

/// Why the kernels do not serve a call.
Reasons reasons(const ConstTensor& index_cache);

std::size_t workspace_size(const IndexArgs& args);
void index_blocks(const IndexArgs& args);
void index_scores(const IndexScoresArgs& args);
void select_blocks(const SelectArgs& args);

}  // namespace msa::cuda::sm90::index
