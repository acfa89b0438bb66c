// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include "cuda/common/index/params.h"

/// \file
/// What the score kernel is launched with.

namespace msa::cuda::sm90::index {

struct ScoreParams : ScoreCall {
  CUtensorMap keys;  // boxes of 128 tokens by 128 bytes
  int slots;         // of the ring
};

}  // namespace msa::cuda::sm90::index
