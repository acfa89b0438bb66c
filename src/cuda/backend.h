// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"

namespace msa::cuda {

/// The portable CUDA backend: any device of compute capability 8.0 or later.
const Backend& portable_backend();
/// wgmma and copy-engine kernels for compute capability 9.0: attend and the indexer.
const Backend& sm90_backend();

}  // namespace msa::cuda
