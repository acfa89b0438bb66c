// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/read_back.h"

#include "api/check.h"
#include "cuda/common/launch.h"

namespace msa::cuda {

bool capturing(const char* op, Device device, Stream stream) {
  const DeviceGuard guard(op, device.index);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle), &status), op,
        "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void download(const char* op, Device device, Stream stream, void* to, const void* from,
              std::size_t bytes) {
  const DeviceGuard guard(op, device.index);
  auto* const on = static_cast<cudaStream_t>(stream.handle);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, on), op, "cudaMemcpyAsync");
  check(cudaStreamSynchronize(on), op, "cudaStreamSynchronize");
}

void settle(const char* op, Device device, Stream stream) {
  if (!metadata_checks_enabled() || capturing(op, device, stream)) return;
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)), op,
        "cudaStreamSynchronize after the launch");
}

}  // namespace msa::cuda
