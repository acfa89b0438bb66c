// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/device.h"

#include <cuda_runtime.h>

#include <string>

namespace msa::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

/// Why the driver cannot serve this build.
std::string driver_reason(cudaError_t status) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) return "no CUDA driver on this machine (libcuda.so.1 was not found)";
  if (status == cudaErrorInsufficientDriver) {
    return "the CUDA driver serves CUDA " + version_text(driver) + ", this build needs " +
           version_text(CUDART_VERSION);
  }
  return std::string("no CUDA device: ") + cudaGetErrorString(status);
}

}  // namespace

int capability(int device) {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return major * 10 + minor;
}

Reasons device_reasons(int least, int most) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {driver_reason(status)};
  }
  std::string found;
  for (int device = 0; device < count; ++device) {
    const int has = capability(device);
    if (has >= least && has <= most) return {};
    found += (found.empty() ? "" : ", ") + capability_text(has);
  }
  return {"no CUDA device of compute capability " + capability_text(least) +
          (most == least ? "" : " or later") + " (found: " + found + ")"};
}

}  // namespace msa::cuda
