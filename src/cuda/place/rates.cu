// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/place/rates.h"

#include <algorithm>
#include <cstdint>

#include "cuda/common/device.h"
#include "cuda/common/launch.h"
#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/tensor_map.h"

namespace msa::cuda {
namespace {

constexpr const char* who = "rates";
constexpr int replays = 9;
constexpr int calls = 3;  // of a replay
constexpr int page_bytes = 64 * 1024;

/// A generator's number for each (seed, CTA, step): places that no CTA agrees on.
__device__ std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}
__device__ std::uint32_t place_of(std::uint32_t seed, int step, std::uint32_t places) {
  return mixed(mixed(seed * gridDim.x + blockIdx.x) + static_cast<std::uint32_t>(step)) % places;
}

struct CopyParams {
  uint4* to;
  const uint4* from;
  std::size_t count;
};

__global__ __launch_bounds__(512) void copy_kernel(const CopyParams p) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < p.count; i += step) {
    p.to[i] = p.from[i];
  }
}

struct PageParams {
  const uint4* pool;
  std::uint32_t pages;
  int pages_per_cta;
  std::uint32_t seed;
  std::uint32_t* never;  // written where a page's bits say what none says
};

__global__ __launch_bounds__(512) void page_kernel(const PageParams p) {
  constexpr int pieces = page_bytes / static_cast<int>(sizeof(uint4));
  std::uint32_t sum = 0;
  for (int i = 0; i < p.pages_per_cta; ++i) {
    const uint4* page = p.pool + std::size_t{place_of(p.seed, i, p.pages)} * pieces;
#pragma unroll
    for (int at = 0; at < pieces; at += 512) {
      const uint4 piece = page[at + threadIdx.x];
      sum |= piece.x & piece.y & piece.z & piece.w;
    }
  }
  if (sum == 0x12345678u) *p.never = sum;
}

constexpr int box_bytes = 16 * 1024;  // 128 tokens by 128 bytes
constexpr int stages = 4;             // two tiles of 32 KB: three CTAs fit an SM
constexpr int gather_ctas_per_sm = 3;

struct GatherParams {
  CUtensorMap map;
  std::uint32_t tiles;
  int tiles_per_cta;
  int boxes;         // of a tile
  int box_elements;  // along a row
  std::uint32_t seed;
};

__global__ __launch_bounds__(32, gather_ctas_per_sm) void gather_kernel(
    const __grid_constant__ GatherParams p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ std::uint64_t full[stages];
  if (threadIdx.x > 0) return;
  for (std::uint64_t& barrier : full) ::cuda::ptx::mbarrier_init(&barrier, 1);
  ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
  const int steps = p.tiles_per_cta * p.boxes;
  for (int i = 0; i < steps + stages; ++i) {
    const int slot = i % stages;
    if (i >= stages) ptx::wait(full[slot], (i / stages - 1) & 1);
    if (i >= steps) continue;
    const auto tile = static_cast<std::int32_t>(place_of(p.seed, i / p.boxes, p.tiles));
    const std::int32_t corner[] = {i % p.boxes * p.box_elements, 0, 0, tile};
    ptx::arrive_expecting(full[slot], box_bytes);
    ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                      memory + slot * box_bytes, &p.map, corner, &full[slot]);
  }
#endif
}

constexpr int matmul_steps = 2048;
constexpr int matmul_threads = 256;
constexpr int matmul_ctas_per_sm = 2;
constexpr int accumulators = 8;  // independent products of a warp in flight

__global__ __launch_bounds__(matmul_threads, matmul_ctas_per_sm) void matmul_kernel(float* never) {
  float d[accumulators][4] = {};
  // Of about unit size and random signs: zeros would draw less power than a product does.
  std::uint32_t a[4], b[2];
  for (std::uint32_t i = 0; i < 4; ++i) {
    a[i] = (mixed(threadIdx.x * 8 + i) & 0x80ff80ffu) | 0x3f003f00u;
  }
  for (std::uint32_t i = 0; i < 2; ++i) {
    b[i] = (mixed(threadIdx.x * 8 + 4 + i) & 0x80ff80ffu) | 0x3f003f00u;
  }
  for (int step = 0; step < matmul_steps; ++step) {
#pragma unroll
    for (float(&x)[4] : d) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
  float sum = 0;
  for (const float(&x)[4] : d) sum += x[0] + x[1] + x[2] + x[3];
  if (sum == 12345.6789f) *never = sum;
}

/// Median seconds of a call.
double median_seconds(Place& place, const std::function<void(int)>& call) {
  const auto recording = place.record([&] {
    for (int i = 0; i < calls; ++i) call(i);
  });
  recording->run();
  std::vector<double> times;
  for (int i = 0; i < replays; ++i) times.push_back(recording->run() / calls);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class Rates {
 public:
  Rates(Place& place, void* pool, std::size_t bytes)
      : place_(place),
        stream_(static_cast<cudaStream_t>(place.stream().handle)),
        pool_(static_cast<char*>(pool)),
        bytes_(bytes),
        moved_(std::min(bytes / 2, std::size_t{2} << 30) / page_bytes * page_bytes),
        never_(place.allocate(256)) {
    check(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, place.device().index), who,
          "cudaDeviceGetAttribute");
  }
  Rates(const Rates&) = delete;
  Rates& operator=(const Rates&) = delete;
  ~Rates() { place_.free(never_, 256); }

  MemoryRate copy() {
    const CopyParams params{reinterpret_cast<uint4*>(pool_ + bytes_ / 2 / 16 * 16),
                            reinterpret_cast<const uint4*>(pool_), moved_ / sizeof(uint4)};
    const double seconds = median_seconds(place_, [&](int) {
      copy_kernel<<<sms_ * 8, 512, 0, stream_>>>(params);
      check(cudaGetLastError(), who, "launch");
    });
    return {"copy", 2 * static_cast<double>(moved_) / seconds};
  }

  MemoryRate pages() {
    const int ctas = sms_ * 4;
    PageParams params{reinterpret_cast<const uint4*>(pool_),
                      static_cast<std::uint32_t>(bytes_ / page_bytes), each(ctas, page_bytes), 0,
                      static_cast<std::uint32_t*>(never_)};
    const double seconds = median_seconds(place_, [&](int i) {
      params.seed = static_cast<std::uint32_t>(i + 1);
      page_kernel<<<ctas, 512, 0, stream_>>>(params);
      check(cudaGetLastError(), who, "launch");
    });
    return {"pages_64k", static_cast<double>(ctas) * params.pages_per_cta * page_bytes / seconds};
  }

  /// Tiles of 64 KB hold bf16 keys and values, of 32 KB fp8 ones, of 16 KB fp8 index keys.
  MemoryRate gather(int kilobytes) {
    const int tile_bytes = kilobytes * 1024;
    const DType type = kilobytes == 64 ? DType::bf16 : DType::e4m3;
    const auto size = static_cast<std::int64_t>(size_of(type));
    const std::int64_t columns = tile_bytes / page_size / size;
    const auto tiles = static_cast<std::int64_t>(bytes_ / static_cast<std::size_t>(tile_bytes));
    const ConstTensor view(pool_, type, {tiles, 1, page_size, columns},
                           {page_size * columns, page_size * columns, columns, 1});
    const int ctas = sms_ * gather_ctas_per_sm;
    GatherParams params{tile_map(who, view),          static_cast<std::uint32_t>(tiles),
                        each(ctas, tile_bytes),       tile_bytes / box_bytes,
                        static_cast<int>(128 / size), 0};
    check(cudaFuncSetAttribute(gather_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               stages * box_bytes),
          who, "cudaFuncSetAttribute");
    const double seconds = median_seconds(place_, [&](int i) {
      params.seed = static_cast<std::uint32_t>(i + 1);
      gather_kernel<<<ctas, 32, stages * box_bytes, stream_>>>(params);
      check(cudaGetLastError(), who, "launch");
    });
    return {"gather_" + std::to_string(kilobytes) + "k",
            static_cast<double>(ctas) * params.tiles_per_cta * tile_bytes / seconds};
  }

  double matmul() {
    const int ctas = sms_ * matmul_ctas_per_sm;
    const double seconds = median_seconds(place_, [&](int) {
      matmul_kernel<<<ctas, matmul_threads, 0, stream_>>>(static_cast<float*>(never_));
      check(cudaGetLastError(), who, "launch");
    });
    constexpr double product = 2.0 * 16 * 8 * 16;
    return product * accumulators * matmul_steps * (matmul_threads / 32) * ctas / seconds;
  }

 private:
  /// Pieces of a CTA, of `bytes` each, so that a call reads what `copy` copies.
  int each(int ctas, int bytes) const {
    const std::size_t all = moved_ / static_cast<std::size_t>(bytes);
    return static_cast<int>(std::max<std::size_t>(all / static_cast<std::size_t>(ctas), 1));
  }

  Place& place_;
  cudaStream_t stream_;
  char* pool_;
  std::size_t bytes_;
  std::size_t moved_;
  void* never_;
  int sms_ = 0;
};

}  // namespace

DeviceRates measure_rates(Place& place, void* pool, std::size_t bytes) {
  const int device = place.device().index;
  const DeviceGuard guard(who, device);
  Rates rates(place, pool, bytes);
  DeviceRates found;
  found.memory.push_back(rates.copy());
  found.memory.push_back(rates.pages());
  if (capability(device) >= 90) {
    for (const int kilobytes : {64, 32, 16}) found.memory.push_back(rates.gather(kilobytes));
  }
  found.matmul_flops = rates.matmul();
  return found;
}

}  // namespace msa::cuda
