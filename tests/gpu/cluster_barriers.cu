// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cuda/ptx>

#include <cstdint>
#include <cstdio>

/// \file
/// A kernel with nothing but a barrier in the shared memory of each CTA, launched as eight clusters
/// of 16 CTAs. It is right and ends well; under synccheck of compute-sanitizer 2025.3.1 it ends
/// with cudaErrorIllegalAddress, while seven such clusters, or any number of clusters of eight, do
/// not. As long as that is so, `tools/gpu_check synccheck` leaves out the cases that launch as
/// many.
///
/// Exits with 0 where the kernel ended well.

namespace {

constexpr int cluster = 16, clusters = 8, threads = 256;

__global__ void await_own_barrier() {
  __shared__ std::uint64_t barrier;
  if (threadIdx.x == 0) {
    cuda::ptx::mbarrier_init(&barrier, 1);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  }
  __syncthreads();
  if (threadIdx.x == 0) cuda::ptx::mbarrier_arrive(&barrier);
  while (!cuda::ptx::mbarrier_try_wait_parity(&barrier, 0)) {
  }
}

cudaError_t run() {
  const cudaError_t allowed =
      cudaFuncSetAttribute(await_own_barrier, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (allowed != cudaSuccess) return allowed;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(cluster * clusters);
  config.blockDim = dim3(threads);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t launched = cudaLaunchKernelEx(&config, await_own_barrier);
  return launched != cudaSuccess ? launched : cudaDeviceSynchronize();
}

}  // namespace

int main() {
  const cudaError_t status = run();
  std::printf("%d clusters of %d CTAs: %s\n", clusters, cluster, cudaGetErrorName(status));
  return status == cudaSuccess ? 0 : 1;
}
