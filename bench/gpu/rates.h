// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// \file
/// What the card itself can do, measured in the same run as the operators: kernels, as a copy call
/// inside a graph is slower than one.

namespace msa::bench {

/// Copies `bytes` (a multiple of 16) with the whole device.
void launch_copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

/// Fetches `tiles` (page, head) tiles of `tile_bytes` (64, 32 or 16 KB) at random places of the
/// pool into shared memory through a tensor map, and does nothing with them. 3 CTAs a SM with two
/// stages of 32 KB each, the best of the shapes tried for the decode kernel.
class Gather {
 public:
  Gather(const void* pool, std::size_t pool_bytes, std::size_t tile_bytes, std::int64_t tiles);
  Gather(const Gather&) = delete;
  Gather& operator=(const Gather&) = delete;
  ~Gather();

  void launch(std::uint32_t seed, cudaStream_t stream) const;
  std::size_t bytes() const;

 private:
  struct State;
  State* state_;
};

/// Products without memory: every SM has four warpgroups that multiply 64 x 64 tiles of bf16 over
/// and over (wgmma m64n64k16, f32 sums in registers). The operands are random and stay in shared
/// memory, so this is the rate at which the tensor cores are issued to; a matrix product that
/// fetches its operands, as cuBLAS does, reaches about three quarters of it.
class MatmulLoop {
 public:
  MatmulLoop();
  void launch(cudaStream_t stream) const;
  double flops() const;

 private:
  int ctas_;
};

/// The same by mma.sync m16n8k16, which takes both operands from registers: 16 warps an SM, each
/// with eight sums. What the portable kernels' products could reach on this card.
class MmaLoop {
 public:
  MmaLoop();
  void launch(cudaStream_t stream) const;
  double flops() const;

 private:
  int ctas_;
};

}  // namespace msa::bench
