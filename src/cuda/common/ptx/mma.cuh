// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/ptx/operand.h"

/// \file
/// mma.sync, the matrix product of one warp on every device from SM80 on, and what feeds it:
/// D[16, 8] += A[16, 16] · B[16, 8], f32 sums of exact products of two 16-bit types.
///
/// Registers of a lane 4 g + c, two elements of neighbouring columns (of B: rows) a register:
/// A: {row g, columns 2 c and + 1}, row g + 8, then both of columns + 8. B: column g, rows 2 c and
/// + 1, then rows + 8. D: row g, columns 2 c and + 1, then row g + 8. So D of one product, rounded,
/// is A of the next.

namespace msa::cuda::ptx {

template <Operand type>
__device__ inline void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                           std::uint32_t b1) {
  if constexpr (type == Operand::bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// The same of e4m3, D[16, 8] += A[16, 32] · B[32, 8], four elements of neighbouring columns (of B:
/// rows) a register: A: {row g, columns 4 c to + 3}, row g + 8, then both of columns + 16. B:
/// column g, rows 4 c to + 3, then rows + 16. From SM89 on; SM90 widens both to f16.
__device__ inline void mma_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four matrices of 8 rows of 16 bytes: lane 8 i + r gives the address of row r of matrix i, and
/// x[i] becomes matrix i's row lane / 4, elements 2 (lane % 4) and + 1.
__device__ inline void load_matrices(std::uint32_t (&x)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}
/// The same of the transposed matrices: rows 2 (lane % 4) and + 1, element lane / 4.
__device__ inline void load_transposed(std::uint32_t (&x)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

/// Asks for 16 bytes of global memory in shared memory, past L1; where `wanted` is false, for zeros
/// and nothing is read.
__device__ inline void copy_16(std::uint32_t to, const void* from, bool wanted = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(wanted ? 16 : 0)
               : "memory");
}
/// Ends a group of what this thread asked for.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All of this thread's groups but the last `pending` have arrived, for this thread.
template <int pending = 0>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace msa::cuda::ptx
