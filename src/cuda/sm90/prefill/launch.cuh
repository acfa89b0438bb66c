// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cuda/common/devices.h"
#include "cuda/common/launch.h"
#include "cuda/sm90/prefill/kernel.cuh"
#include "cuda/sm90/prefill/launch.h"

/// \file
/// Host side of the prefill kernel for one cache type.

namespace msa::cuda::sm90::prefill {

template <DType type>
void launch_type(const Params& p, int device, Stream stream) {
  static DeviceNotes<int> sms;
  const int ctas = sms.of(device, [](int d) {
    return prepare_kernel("attend", prefill_kernel<type>, shared_bytes, d);
  });
  launch_dependent("attend", prefill_kernel<type>, std::min<std::int64_t>(p.items, ctas),
                   Team<type>::threads, dynamic_bytes<type>(p.capacity), stream, p);
}

}  // namespace msa::cuda::sm90::prefill
