// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/index/params.h"

/// \file
/// What the score kernel is launched with.

namespace msa::cuda::portable::index {

struct ScoreParams : ScoreCall {
  const char* keys;                  // [pages, 128, 128]
  std::int64_t key_page, key_token;  // bytes
  bool keys_aligned;                 // rows start at multiples of 16 bytes
};

}  // namespace msa::cuda::portable::index
