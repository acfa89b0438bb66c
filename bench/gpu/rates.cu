// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "rates.h"

#include <algorithm>

#include "cuda/common/launch.h"
#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/tensor_map.h"

namespace msa::bench {
namespace {

using cuda::check;
namespace ptx = cuda::ptx;

__global__ void copy_kernel(uint4* to, const uint4* from, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

constexpr int ctas_per_sm = 3;
constexpr int box_bytes = 16 * 1024;  // 128 tokens by 128 bytes
constexpr int stages = 4;             // two of 32 KB

/// A generator's number for each (seed, CTA, step): tiles that no CTA agrees on.
__device__ std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

__global__ __launch_bounds__(32, ctas_per_sm) void gather_kernel(
    const __grid_constant__ CUtensorMap map, std::uint32_t pages, int tiles, int boxes,
    int box_elements, std::uint32_t seed) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ std::uint64_t full[stages];
  if (threadIdx.x > 0) return;
  for (std::uint64_t& barrier : full) ::cuda::ptx::mbarrier_init(&barrier, 1);
  ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
  const int steps = tiles * boxes;
  for (int i = 0; i < steps + stages; ++i) {
    const int slot = i % stages;
    if (i >= stages) ptx::wait(full[slot], (i / stages - 1) & 1);
    if (i >= steps) continue;
    const auto page = static_cast<std::int32_t>(
        mixed(mixed(seed * gridDim.x + blockIdx.x) + static_cast<std::uint32_t>(i / boxes)) %
        pages);
    const std::int32_t corner[] = {i % boxes * box_elements, 0, 0, page};
    ptx::arrive_expecting(full[slot], box_bytes);
    ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                      memory + slot * box_bytes, &map, corner, &full[slot]);
  }
}

}  // namespace

struct Gather::State {
  CUtensorMap map;
  std::uint32_t pages;
  int tiles_per_cta, boxes, box_elements, ctas;
  std::size_t bytes;
};

void launch_copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  copy_kernel<<<132 * 8, 512, 0, stream>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from),
                                           bytes / sizeof(uint4));
  check(cudaGetLastError(), "copy", "launch");
}

Gather::Gather(const void* pool, std::size_t pool_bytes, std::size_t tile_bytes,
               std::int64_t tiles) {
  // K and V of a token side by side in bf16 or fp8; of 16 KB, keys of the indexer's cache in fp8.
  const DType type = tile_bytes == 64 * 1024 ? DType::bf16 : DType::e4m3;
  const auto size = static_cast<std::int64_t>(size_of(type));
  const std::int64_t columns = static_cast<std::int64_t>(tile_bytes) / page_size / size;
  const auto pages = static_cast<std::int64_t>(pool_bytes / tile_bytes);
  const ConstTensor view(pool, type, {pages, 1, page_size, columns},
                         {page_size * columns, page_size * columns, columns, 1});
  state_ = new State{cuda::tile_map("gather", view),
                     static_cast<std::uint32_t>(pages),
                     0,
                     static_cast<int>(tile_bytes / box_bytes),
                     static_cast<int>(128 / size),
                     0,
                     0};
  int device = 0, sms = 0;
  check(cudaGetDevice(&device), "gather", "cudaGetDevice");
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "gather",
        "cudaDeviceGetAttribute");
  state_->ctas = sms * ctas_per_sm;
  state_->tiles_per_cta = static_cast<int>(std::max<std::int64_t>(tiles / state_->ctas, 1));
  state_->bytes = static_cast<std::size_t>(state_->ctas) * state_->tiles_per_cta * tile_bytes;
  check(cudaFuncSetAttribute(gather_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             stages * box_bytes),
        "gather", "cudaFuncSetAttribute");
}

Gather::~Gather() { delete state_; }

std::size_t Gather::bytes() const { return state_->bytes; }

void Gather::launch(std::uint32_t seed, cudaStream_t stream) const {
  gather_kernel<<<state_->ctas, 32, stages * box_bytes, stream>>>(
      state_->map, state_->pages, state_->tiles_per_cta, state_->boxes, state_->box_elements, seed);
  check(cudaGetLastError(), "gather", "launch");
}

}  // namespace msa::bench
