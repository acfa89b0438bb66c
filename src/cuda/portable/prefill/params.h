// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/attend/call.h"
#include "cuda/common/attend/tiles.h"

/// \file
/// What the prefill kernel is launched with.

namespace msa::cuda::portable::prefill {

struct Params : AttendCall, Tiling {
  bool kv_aligned;          // rows start at multiples of 16 bytes
  std::int64_t first_item;  // of this launch: an item is a place of a head
};

}  // namespace msa::cuda::portable::prefill
