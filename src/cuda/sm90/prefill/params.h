// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/attend/tiles.h"
#include "cuda/sm90/common/call.cuh"

/// \file
/// What the prefill kernel is launched with.

namespace msa::cuda::sm90::prefill {

struct Params : Call, Tiling {
  std::int64_t items;  // places · heads
};

}  // namespace msa::cuda::sm90::prefill
