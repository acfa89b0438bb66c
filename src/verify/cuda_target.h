// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "verify/verify.h"

namespace msa::verify {

/// Adds a target for the first CUDA device; nothing on a machine without one.
void add_cuda_targets(std::vector<Target>& targets);

}  // namespace msa::verify
