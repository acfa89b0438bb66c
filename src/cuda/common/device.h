// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"

/// \file
/// What the machine's driver and devices can run.

namespace msa::cuda {

/// Compute capability of a device, major · 10 + minor; 0 where there is none.
int capability(int device);

/// The first capability whose devices start a kernel before the one ahead has ended.
inline constexpr int first_with_dependent_launch = 90;

/// No upper bound.
inline constexpr int latest_capability = 1 << 20;

/// Why no device of this machine has a capability from `least` to `most`; empty = one has. Asks the
/// driver: only for calls with CUDA tensors and for `msa info`, as it starts CUDA in this process.
Reasons device_reasons(int least, int most);

}  // namespace msa::cuda
