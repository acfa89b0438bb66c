// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "fill.h"

#include "inputs.h"
#include "mixed.cuh"

namespace msa::bench {
namespace {

__global__ void fill_kernel(std::uint32_t* words, std::size_t count, std::uint32_t keep,
                            std::uint32_t set) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const std::uint32_t high = mixed(static_cast<std::uint32_t>(i >> 32) + 1);
    words[i] = (mixed(static_cast<std::uint32_t>(i) ^ high) & keep) | set;
  }
}

}  // namespace

void fill_keys(const Memory& pool, DType type, cudaStream_t stream) {
  const ValueMask mask = value_mask(type);
  const auto twice = [](std::uint32_t half) { return half << 16 | half; };
  fill_kernel<<<132 * 8, 512, 0, stream>>>(static_cast<std::uint32_t*>(pool.data()),
                                           pool.bytes() / sizeof(std::uint32_t), twice(mask.keep),
                                           twice(mask.set));
  cuda::check(cudaGetLastError(), "bench", "launch");
}

}  // namespace msa::bench
