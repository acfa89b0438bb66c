// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cuda/common/device.h"
#include "cuda/common/launch.h"
#include "cuda/portable/prefill/kernel.cuh"
#include "cuda/portable/prefill/launch.h"

/// \file
/// Host side of the prefill kernel for one cache type.

namespace msa::cuda::portable::prefill {

template <DType type>
void launch_type(Params p, std::int64_t items, int device, Stream stream) {
  const auto kernel = prefill_kernel<type>;
  const std::size_t bytes = dynamic_bytes<type>(p.capacity);
  prepare_kernel("attend", kernel, shared_bytes, device);
  const bool dependent = capability(device) >= first_with_dependent_launch;
  for (p.first_item = 0; p.first_item < items; p.first_item += max_ctas) {
    const std::int64_t ctas = std::min(items - p.first_item, max_ctas);
    if (dependent) {
      launch_dependent("attend", kernel, ctas, threads, bytes, stream, p);
    } else {
      launch("attend", kernel, ctas, threads, bytes, stream, p);
    }
  }
}

}  // namespace msa::cuda::portable::prefill
