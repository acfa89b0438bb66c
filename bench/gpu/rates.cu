// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "rates.h"

#include <algorithm>

#include "cuda/common/launch.h"
#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/ptx/mma.cuh"
#include "cuda/common/ptx/wgmma.cuh"
#include "cuda/common/tensor_map.h"
#include "mixed.cuh"

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
    // Tiles that no CTA agrees on.
    const auto page = static_cast<std::int32_t>(
        mixed(mixed(seed * gridDim.x + blockIdx.x) + static_cast<std::uint32_t>(i / boxes)) %
        pages);
    const std::int32_t corner[] = {i % boxes * box_elements, 0, 0, page};
    ptx::arrive_expecting(full[slot], box_bytes);
    ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                      memory + slot * box_bytes, &map, corner, &full[slot]);
  }
}

constexpr int warpgroups = 4;                // of a CTA that multiplies, one a SM
constexpr int side = 64;                     // of a tile
constexpr int tile_bytes = side * side * 2;  // rows of 128 bytes
constexpr int steps = side / 16;             // k steps of a product of tiles
constexpr int products_of_a_commit = 4;      // of tiles
constexpr int commits = 1024;
constexpr double flops_of_a_product = 2.0 * side * side * side;

__device__ void multiply(float (&d)[32], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b)
      : "memory");
}

/// The sums stay finite; that they are looked at keeps the products.
__global__ __launch_bounds__(warpgroups * 128, 1) void multiply_kernel() {
  extern __shared__ __align__(1024) unsigned char memory[];
  // bf16 of both signs between 0.5 and 2.
  for (int i = threadIdx.x; i < (warpgroups + 1) * tile_bytes / 2; i += blockDim.x) {
    reinterpret_cast<std::uint16_t*>(memory)[i] =
        static_cast<std::uint16_t>((mixed(static_cast<std::uint32_t>(i)) & 0x80ff) | 0x3f00);
  }
  asm volatile("fence.proxy.async;" ::: "memory");  // wgmma reads what threads have written
  __syncthreads();
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
  const std::uint64_t a = ptx::matrix_descriptor(base + (1 + threadIdx.x / 128) * tile_bytes);
  const std::uint64_t b = ptx::matrix_descriptor(base);
  float d[32] = {};
  for (int i = 0; i < commits; ++i) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < products_of_a_commit * steps; ++step) {
      constexpr int bytes_of_a_step = 32 >> 4;
      multiply(d, a + step % steps * bytes_of_a_step, b + step % steps * bytes_of_a_step);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait();
  }
  float sum = 0;
  for (float x : d) sum += x;
  if (sum != sum) __trap();
}

constexpr int mma_warps = 16;  // of a CTA, one a SM
constexpr int mma_sums = 8;    // of a warp, of products that do not wait for each other
constexpr int mma_rounds = 8192;
constexpr double flops_of_a_mma = 2.0 * 16 * 8 * 16;

/// A register of two bf16 of both signs between 0.5 and 2.
__device__ std::uint32_t random_pair(std::uint32_t i) {
  return (mixed(i) & 0x80ff80ff) | 0x3f003f00;
}

__global__ __launch_bounds__(mma_warps * 32, 1) void mma_kernel() {
  std::uint32_t a[4], b[mma_sums][2];
  for (std::uint32_t i = 0; i < 4; ++i) a[i] = random_pair(threadIdx.x * 32 + i);
#pragma unroll
  for (std::uint32_t i = 0; i < mma_sums; ++i) {
    b[i][0] = random_pair(threadIdx.x * 32 + 8 + 2 * i);
    b[i][1] = random_pair(threadIdx.x * 32 + 9 + 2 * i);
  }
  float d[mma_sums][4] = {};
#pragma unroll 1
  for (int round = 0; round < mma_rounds; ++round) {
#pragma unroll
    for (int i = 0; i < mma_sums; ++i) {
      ptx::mma<ptx::Operand::bf16>(d[i], a, b[i][0], b[i][1]);
    }
  }
  float sum = 0;
  for (const auto& four : d) {
    for (float x : four) sum += x;
  }
  if (sum != sum) __trap();
}

int count_sms(const char* what) {
  int device = 0, sms = 0;
  check(cudaGetDevice(&device), what, "cudaGetDevice");
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), what,
        "cudaDeviceGetAttribute");
  return sms;
}

}  // namespace

MmaLoop::MmaLoop() : ctas_(count_sms("mma")) {}

double MmaLoop::flops() const { return flops_of_a_mma * mma_sums * mma_rounds * mma_warps * ctas_; }

void MmaLoop::launch(cudaStream_t stream) const {
  mma_kernel<<<ctas_, mma_warps * 32, 0, stream>>>();
  check(cudaGetLastError(), "mma", "launch");
}

MatmulLoop::MatmulLoop() : ctas_(count_sms("matmul")) {}

double MatmulLoop::flops() const {
  return flops_of_a_product * products_of_a_commit * commits * warpgroups * ctas_;
}

void MatmulLoop::launch(cudaStream_t stream) const {
  multiply_kernel<<<ctas_, warpgroups * 128, (warpgroups + 1) * tile_bytes, stream>>>();
  check(cudaGetLastError(), "matmul", "launch");
}

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
  state_->ctas = count_sms("gather") * ctas_per_sm;
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
