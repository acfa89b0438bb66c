// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "verify/verify.h"

namespace msa::verify {

/// Adds the targets of the first CUDA device; none on a machine without one.
void add_cuda_targets(std::vector<Target>& targets);

/// A CUDA target whose first submit is captured in a graph, which that one and all later ones
/// replay, whatever calls they name: for calls of the same pointers and shapes. The graph is kept
/// until the process ends.
Target replaying(const Target& target);

}  // namespace msa::verify
