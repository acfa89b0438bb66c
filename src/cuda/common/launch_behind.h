// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/device.h"
#include "cuda/common/devices.h"
#include "cuda/common/launch.h"

namespace msa::cuda {

/// Whether a device's kernels may be set up while the one ahead still runs.
inline bool has_dependent_launch(int device) {
  static DeviceNotes<bool> notes;
  const auto find = [](int asked) { return capability(asked) >= first_with_dependent_launch; };
  return device < max_devices ? notes.of(device, find) : find(device);
}

/// launch_dependent() on devices that have it, an ordinary launch on others.
template <class Params>
void launch_behind(const char* op, int device, void (*kernel)(Params), std::int64_t items,
                   int threads, std::size_t shared_bytes, Stream stream, const Params& params) {
  if (has_dependent_launch(device)) {
    return launch_dependent(op, kernel, items, threads, shared_bytes, stream, params);
  }
  if (items <= 0) return;
  cudaLaunchConfig_t config = launch_config(items, threads, stream);
  config.dynamicSmemBytes = shared_bytes;
  check(cudaLaunchKernelEx(&config, kernel, params), op, "launch");
}

}  // namespace msa::cuda
