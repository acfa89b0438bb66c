// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/launch.h"
#include "cuda/common/range.h"
#include "cuda/common/read_back.h"

/// \file
/// What every call of a CUDA backend does around its launches.

namespace msa::cuda {

/// Runs launches() with `device` current, in a range named `op`.
template <class Launches>
void call_on_device(const char* op, Device device, Stream stream, Launches launches) {
  const Range range(op);
  const DeviceGuard guard(op, device.index);
  launches();
  settle(op, device, stream);
}

}  // namespace msa::cuda
