// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>

#include "cuda/common/devices.h"
#include "cuda/common/launch.h"
#include "cuda/sm90/decode/kernel.cuh"
#include "cuda/sm90/decode/launch.h"

/// \file
/// Host side of the decode kernel for one cache type: picks the instance and its grid.

namespace msa::cuda::sm90::decode {

/// What a kernel may use of a device. How many clusters of a size run at once depends on how its
/// SMs are grouped.
struct Residency {
  int ctas = 0;
  Clusters clusters = {};
};

template <class Cache, int n>
Residency find_residency(int device) {
  const auto kernel = decode_kernel<Cache, n>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "attend",
        "cudaFuncSetAttribute");
  Residency found;
  found.ctas = ctas_per_sm * prepare_kernel("attend", kernel, shared_bytes, device);
  for (int size = 2; size <= segments(n); size *= 2) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(size));
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&found.clusters[size], kernel, &config) != cudaSuccess) {
      cudaGetLastError();
      found.clusters[size] = 0;  // the device has no such clusters
    }
  }
  return found;
}

/// Asked once for each device; also lets the kernel use its shared memory and clusters of 16.
template <class Cache, int n>
const Residency& residency(int device) {
  static DeviceNotes<Residency> notes;
  return notes.of(device, find_residency<Cache, n>);
}

template <class Cache, int n>
void launch_columns(Params& p, int device, Stream stream) {
  const Residency& resident = residency<Cache, n>(device);
  const Clusters clusters =
      clusters_with_ring<n>(resident.clusters, p.capacity, least_slots(Cache::widens ? 1 : 2));
  p.cluster = cluster_size(p.items, clusters.data(), n);
  p.cluster_log2 = std::countr_zero(static_cast<unsigned>(p.cluster));
  p.received_columns = received_columns(p.cluster, n);
  p.slots = ring_slots<n>(p.capacity, p.cluster);

  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(p.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  // Clusters all start at once; without, items beyond the resident CTAs are taken in turn.
  config.gridDim = dim3(static_cast<unsigned>(p.cluster > 1 ? p.items * p.cluster
                                                            : std::min(p.items, resident.ctas)));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = dynamic_bytes<n>(p.capacity, p.cluster);
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
