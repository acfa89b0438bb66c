// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "msa/types.h"

/// \file
/// Launches, checked: every CUDA error of a call becomes an msa::Error with the call's name.

namespace msa::cuda {

/// Throws Error(device) unless `status` is success; `what` is what was tried.
void check(cudaError_t status, const char* op, const char* what);

/// Makes `device` the calling thread's current device, and restores the one before.
class DeviceGuard {
 public:
  DeviceGuard(const char* op, int device);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

 private:
  int device_;
  int before_ = 0;
};

/// Most CTAs of a grid: kernels loop over their items, so that no count of items is too large.
inline constexpr std::int64_t max_ctas = 1 << 16;

/// One CTA an item, on the x axis alone.
inline cudaLaunchConfig_t launch_config(std::int64_t items, int threads, Stream stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::min(items, max_ctas)));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream.handle);
  return config;
}

/// Starts kernel(params); nothing where there is no item.
template <class Params>
void launch(const char* op, void (*kernel)(Params), std::int64_t items, int threads, Stream stream,
            const Params& params) {
  if (items <= 0) return;
  const cudaLaunchConfig_t config = launch_config(items, threads, stream);
  check(cudaLaunchKernelEx(&config, kernel, params), op, "launch");
}

/// The same with `shared_bytes` of dynamic shared memory.
template <class Params>
void launch(const char* op, void (*kernel)(Params), std::int64_t items, int threads,
            std::size_t shared_bytes, Stream stream, const Params& params) {
  if (items <= 0) return;
  cudaLaunchConfig_t config = launch_config(items, threads, stream);
  config.dynamicSmemBytes = shared_bytes;
  check(cudaLaunchKernelEx(&config, kernel, params), op, "launch");
}

/// The same for a kernel that may set itself up while the one before ends (meet_dependencies).
template <class Params>
void launch_dependent(const char* op, void (*kernel)(Params), std::int64_t items, int threads,
                      std::size_t shared_bytes, Stream stream, const Params& params) {
  if (items <= 0) return;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = launch_config(items, threads, stream);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, params), op, "launch");
}

/// Lets a kernel have so much dynamic shared memory; returns the SMs of the device, which is the
/// current one.
template <class Params>
int prepare_kernel(const char* op, void (*kernel)(Params), std::size_t shared_bytes, int device) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        op, "cudaFuncSetAttribute");
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), op,
        "cudaDeviceGetAttribute");
  return sms;
}

}  // namespace msa::cuda
