// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cuda/common/launch.h"
#include "cuda/sm90/common/devices.h"
#include "cuda/sm90/prefill/kernel.cuh"
#include "cuda/sm90/prefill/launch.h"

/// \file
/// Host side of the prefill kernel for one cache type.

namespace msa::cuda::sm90::prefill {

/// Lets the kernel use its shared memory; returns the device's SMs.
template <DType type>
int prepare(int device) {
  check(cudaFuncSetAttribute(prefill_kernel<type>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "attend", "cudaFuncSetAttribute");
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "attend",
        "cudaDeviceGetAttribute");
  return sms;
}

template <DType type>
void launch_type(const Params& p, int device, Stream stream) {
  static DeviceNotes<int> sms;
  const int ctas = sms.of(device, prepare<type>);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min<std::int64_t>(p.items, ctas)));
  config.blockDim = dim3(Team<type>::threads);
  config.dynamicSmemBytes = dynamic_bytes<type>(p.capacity);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, prefill_kernel<type>, p), "attend", "launch");
}

}  // namespace msa::cuda::sm90::prefill
