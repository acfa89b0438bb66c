// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "device.h"

namespace msa::bench {

/// Fills the memory with values of about unit size, others in every page: blocks of equal contents,
/// as fill_pool() makes them, have equal scores, and a choice among ties is an easier one.
void fill_keys(const Memory& pool, DType type, cudaStream_t stream);

}  // namespace msa::bench
