// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/devices.h"
#include "cuda/portable/decode/kernel.cuh"
#include "cuda/portable/decode/launch.h"
#include "cuda/portable/decode/start.h"

/// \file
/// Host side of the decode kernel for one cache type.

namespace msa::cuda::portable::decode {

template <class Cache, int tiles>
void launch_tiles(const Params& p, Stream stream) {
  using S = Shape<Cache::element_bytes, tiles>;
  static DeviceNotes<int> notes;
  int device = 0;
  check(cudaGetDevice(&device), "attend", "cudaGetDevice");
  const auto kernel = decode_kernel<Cache, tiles>;
  notes.of(device,
           [&](int index) { return prepare_kernel("attend", kernel, dynamic_bytes<S>(), index); });
  start(kernel, std::int64_t{p.items} * p.splits, threads_of(tiles), dynamic_bytes<S>(), stream, p);
}

template <class Cache>
void launch_cache(const Params& p, int tiles, Stream stream) {
  tiles == 1 ? launch_tiles<Cache, 1>(p, stream) : launch_tiles<Cache, 2>(p, stream);
}

}  // namespace msa::cuda::portable::decode
