// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include "cuda/common/attend/call.h"

/// \file
/// A call of attend as the SM90 kernels see it.

namespace msa::cuda::sm90 {

struct Call : AttendCall {
  CUtensorMap k_map, v_map;  // boxes of 128 tokens by 128 bytes
};

/// Fills `call`; makes the tensor maps.
void fill_call(Call& call, const AttendArgs& args);

}  // namespace msa::cuda::sm90
