// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/launch.h"

#include <string>

#include "msa/error.h"

namespace msa::cuda {

void check(cudaError_t status, const char* op, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // the host program should not meet our error again
  throw Error(ErrorCode::device, std::string(op) + ": " + what +
                                     " failed: " + cudaGetErrorName(status) + " (" +
                                     cudaGetErrorString(status) + ")");
}

DeviceGuard::DeviceGuard(const char* op, int device) : device_(device) {
  check(cudaGetDevice(&before_), op, "cudaGetDevice");
  if (before_ != device_) check(cudaSetDevice(device_), op, "cudaSetDevice");
}

DeviceGuard::~DeviceGuard() {
  if (before_ != device_) cudaSetDevice(before_);
}

}  // namespace msa::cuda
