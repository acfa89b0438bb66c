// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <bit>

#include "cuda/common/launch.h"
#include "cuda/sm90/decode/kernel.cuh"
#include "cuda/sm90/decode/launch.h"

/// \file
/// Host side of the decode kernel for one cache type: picks the instance and its grid.

namespace msa::cuda::sm90::decode {

/// Lets the kernel use its shared memory and clusters of 16, once for each device.
template <class Cache, int n>
void prepare(int device) {
  static std::atomic<std::uint64_t> prepared{0};
  const std::uint64_t bit = std::uint64_t{1} << (device % 64);
  if (prepared.load(std::memory_order_acquire) & bit) return;
  const auto kernel = decode_kernel<Cache, n>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "attend", "cudaFuncSetAttribute");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "attend",
        "cudaFuncSetAttribute");
  prepared.fetch_or(bit, std::memory_order_release);
}

template <class Cache, int n>
void launch_columns(Params& p, int device, Stream stream) {
  prepare<Cache, n>(device);
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "attend",
        "cudaDeviceGetAttribute");
  const std::int64_t resident = std::int64_t{ctas_per_sm} * sms;
  p.cluster = cluster_size(p.items, resident, n);
  p.cluster_log2 = std::countr_zero(static_cast<unsigned>(p.cluster));
  p.slots = ring_slots<n>(p.capacity);

  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(p.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  // Clusters all start at once; without, items beyond the resident CTAs are taken in turn.
  config.gridDim = dim3(static_cast<unsigned>(
      p.cluster > 1 ? p.items * p.cluster : p.items < resident ? p.items : resident));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = dynamic_bytes<n>(p.capacity);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = attributes;
  config.numAttrs = p.cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelEx(&config, decode_kernel<Cache, n>, p), "attend", "launch");
}

template <class Cache>
void launch_cache(Params& p, int device, Stream stream) {
  switch (padded_columns(p.rows * p.group)) {
    case 8:
      return launch_columns<Cache, 8>(p, device, stream);
    case 16:
      return launch_columns<Cache, 16>(p, device, stream);
    default:
      return launch_columns<Cache, 32>(p, device, stream);
  }
}

}  // namespace msa::cuda::sm90::decode
