// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/dependency.cuh"
#include "cuda/portable/decode/math.cuh"

/// \file
/// The decode kernel: a CTA computes an item, or a run of its units.

namespace msa::cuda::portable::decode {

template <class Cache, int tiles>
__global__ __launch_bounds__(threads_of(tiles),
                             ctas_per_sm) void decode_kernel(const __grid_constant__ Params p) {
  using S = Shape<Cache::element_bytes, tiles>;
  extern __shared__ __align__(256) unsigned char memory[];
  meet_dependencies();
  const int index = static_cast<int>(blockIdx.x);
  const int item_index = p.splits == 1 ? index : index / p.splits;
  const int split = p.splits == 1 ? 0 : index - item_index * p.splits;
  const Item item(p, item_index);
  Cta<Cache, S> cta(p, item, *reinterpret_cast<Shared<S>*>(memory));
  cta.prepare();
  if (p.splits == 1) {
    cta.sum(0, cta.units());
    cta.write();
    return;
  }
  const int units = cta.units(), share = share_of_item(p, units);
  char* partials = p.workspace + item_index * item_bytes(p.units, tiles);
  if (split == 0 && threadIdx.x == 0) *reinterpret_cast<std::int32_t*>(partials) = units;
  const int first = min(split * share, units);
  cta.partials = partials + header_bytes;
  cta.sum(first, min(first + share, units));
}

}  // namespace msa::cuda::portable::decode
