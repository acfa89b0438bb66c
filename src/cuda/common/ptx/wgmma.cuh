// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/ptx/operand.h"

/// \file
/// wgmma, the warpgroup matrix product of SM90: D[64, n] += A[64, 16] · B[16, n], f32 sums of exact
/// products of two 16-bit types. Own text, as cuda::ptx has none.
///
/// D's registers of a thread (lane = 4 g + c of warp w): for each 8 columns j: {row 16 w + g,
/// columns 8 j + 2 c and + 1}, then the same of row 16 w + g + 8. A's registers: {row g, columns
/// 2 c and + 1}, row g + 8, then both of columns + 8.

namespace msa::cuda::ptx {

/// The upper half of a matrix descriptor: groups 1,024 bytes apart, swizzled by 128 bytes.
inline constexpr std::uint32_t matrix_upper = 0x40000040;
/// The lower half, for a matrix in shared memory of rows of 128 bytes in groups of 8. To step
/// inside the matrix add step_of() of the bytes: 32 for every k step inside the rows, or 2,048
/// where the rows are k's. `box_bytes`: where the rows are k's and more than 64 elements of m or n
/// wide, what lies between one 64 of them and the next.
__device__ inline std::uint32_t matrix_at(std::uint32_t address, std::uint32_t box_bytes = 16) {
  return box_bytes >> 4 << 16 | (address & 0x3ffff) >> 4;
}
constexpr int step_of(int bytes) { return bytes >> 4; }
/// The whole descriptor.
__device__ inline std::uint64_t matrix_descriptor(std::uint32_t address) {
  return std::uint64_t{matrix_upper} << 32 | matrix_at(address);
}

/// Registers written before this may be read by the products that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// All products of this warpgroup but those of the last `pending` commits are done: their registers
/// and shared memory are free.
template <int pending = 0>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// A warpgroup's threads give up registers beyond `count`, or get as many (setmaxnreg).
template <int count>
__device__ inline void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

#define MSA_F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MSA_F8(d, i) MSA_F4(d, i), MSA_F4(d, i + 4)
#define MSA_F16(d, i) MSA_F8(d, i), MSA_F8(d, i + 8)
#define MSA_F32(d, i) MSA_F16(d, i), MSA_F16(d, i + 16)
#define MSA_F64(d) MSA_F32(d, 0), MSA_F32(d, 32)
#define MSA_D4 "{%0, %1, %2, %3}"
#define MSA_D8 "{%0, %1, %2, %3, %4, %5, %6, %7}"
#define MSA_D16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define MSA_D32                                                             \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define MSA_D64                                                                      \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define MSA_MATRIX "0x40000040"  // matrix_upper
#define MSA_WGMMA(n, type, list) \
  "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " " list ", "
/// A in shared memory; operands after D's: A and B, whether D counts, A's direction.
#define MSA_WGMMA_SHARED(n, type, list, a, b, keep, along_m, ...)                   \
  asm volatile("{.reg .pred p; .reg .b64 a, b; mov.b64 a, {%" #a ", " MSA_MATRIX    \
               "}; mov.b64 b, {%" #b ", " MSA_MATRIX "}; setp.ne.b32 p, %" #keep    \
               ", 0; " MSA_WGMMA(n, type, list) "a, b, p, 1, 1, %" #along_m ", 0;}" \
               : __VA_ARGS__                                                        \
               : "r"(a_matrix), "r"(b_matrix), "r"(keep_d), "n"(a_along_m)          \
               : "memory")
/// A in registers.
#define MSA_WGMMA_REGISTERS(n, type, list, a0, a1, a2, a3, b, keep, along_n, ...)       \
  asm volatile("{.reg .pred p; .reg .b64 b; mov.b64 b, {%" #b ", " MSA_MATRIX           \
               "}; setp.ne.b32 p, %" #keep                                              \
               ", 0; " MSA_WGMMA(n, type, list) "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3  \
                                                "}, b, p, 1, 1, " along_n ";}"          \
               : __VA_ARGS__                                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_matrix), "r"(keep_d) \
               : "memory")

/// e4m3, both in shared memory.
#define MSA_WGMMA_E4M3(n, list, a, b, keep, ...)                                     \
  asm volatile("{.reg .pred p; .reg .b64 a, b; mov.b64 a, {%" #a ", " MSA_MATRIX     \
               "}; mov.b64 b, {%" #b ", " MSA_MATRIX "}; setp.ne.b32 p, %" #keep     \
               ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 " list \
               ", a, b, p, 1, 1;}"                                                   \
               : __VA_ARGS__                                                         \
               : "r"(a_matrix), "r"(b_matrix), "r"(keep_d)                           \
               : "memory")

/// D = A · B, plus D where `keep_d` is not 0. `a_along_m`: A's rows in memory run along m
/// ([k][m], 1), else along k ([m][k], 0).
template <Operand type, int a_along_m, int registers>
__device__ inline void wgmma(float (&d)[registers], std::uint32_t a_matrix, std::uint32_t b_matrix,
                             int keep_d) {
  constexpr bool bf16 = type == Operand::bf16;
  if constexpr (registers == 4 && bf16) {
    MSA_WGMMA_SHARED(8, bf16, MSA_D4, 4, 5, 6, 7, MSA_F4(d, 0));
  } else if constexpr (registers == 4) {
    MSA_WGMMA_SHARED(8, f16, MSA_D4, 4, 5, 6, 7, MSA_F4(d, 0));
  } else if constexpr (registers == 8 && bf16) {
    MSA_WGMMA_SHARED(16, bf16, MSA_D8, 8, 9, 10, 11, MSA_F8(d, 0));
  } else if constexpr (registers == 8) {
    MSA_WGMMA_SHARED(16, f16, MSA_D8, 8, 9, 10, 11, MSA_F8(d, 0));
  } else if constexpr (registers == 16 && bf16) {
    MSA_WGMMA_SHARED(32, bf16, MSA_D16, 16, 17, 18, 19, MSA_F16(d, 0));
  } else if constexpr (registers == 16) {
    MSA_WGMMA_SHARED(32, f16, MSA_D16, 16, 17, 18, 19, MSA_F16(d, 0));
  } else if constexpr (registers == 32 && bf16) {
    MSA_WGMMA_SHARED(64, bf16, MSA_D32, 32, 33, 34, 35, MSA_F32(d, 0));
  } else if constexpr (registers == 32) {
    MSA_WGMMA_SHARED(64, f16, MSA_D32, 32, 33, 34, 35, MSA_F32(d, 0));
  } else if constexpr (bf16) {
    MSA_WGMMA_SHARED(128, bf16, MSA_D64, 64, 65, 66, 67, MSA_F64(d));
  } else {
    static_assert(registers == 64, "n is 8, 16, 32, 64 or 128");
    MSA_WGMMA_SHARED(128, f16, MSA_D64, 64, 65, 66, 67, MSA_F64(d));
  }
}

/// The same with A in registers, f16 alone: what fp8 is widened to.
template <int registers>
__device__ inline void wgmma(float (&d)[registers], const std::uint32_t (&a)[4],
                             std::uint32_t b_matrix, int keep_d) {
  if constexpr (registers == 4) {
    MSA_WGMMA_REGISTERS(8, f16, MSA_D4, 4, 5, 6, 7, 8, 9, "0", MSA_F4(d, 0));
  } else if constexpr (registers == 8) {
    MSA_WGMMA_REGISTERS(16, f16, MSA_D8, 8, 9, 10, 11, 12, 13, "0", MSA_F8(d, 0));
  } else if constexpr (registers == 16) {
    MSA_WGMMA_REGISTERS(32, f16, MSA_D16, 16, 17, 18, 19, 20, 21, "0", MSA_F16(d, 0));
  } else if constexpr (registers == 32) {
    MSA_WGMMA_REGISTERS(64, f16, MSA_D32, 32, 33, 34, 35, 36, 37, "0", MSA_F32(d, 0));
  } else {
    static_assert(registers == 64, "n is 8, 16, 32, 64 or 128");
    MSA_WGMMA_REGISTERS(128, f16, MSA_D64, 64, 65, 66, 67, 68, 69, "0", MSA_F64(d));
  }
}

/// D[64, n] += A[64, 32] · B[32, n] of e4m3, both in shared memory along k. The sums keep about 13
/// bits of fraction.
template <int registers>
__device__ inline void wgmma_e4m3(float (&d)[registers], std::uint32_t a_matrix,
                                  std::uint32_t b_matrix, int keep_d) {
  if constexpr (registers == 4) {
    MSA_WGMMA_E4M3(8, MSA_D4, 4, 5, 6, MSA_F4(d, 0));
  } else if constexpr (registers == 8) {
    MSA_WGMMA_E4M3(16, MSA_D8, 8, 9, 10, MSA_F8(d, 0));
  } else if constexpr (registers == 16) {
    MSA_WGMMA_E4M3(32, MSA_D16, 16, 17, 18, MSA_F16(d, 0));
  } else if constexpr (registers == 32) {
    MSA_WGMMA_E4M3(64, MSA_D32, 32, 33, 34, MSA_F32(d, 0));
  } else {
    static_assert(registers == 64, "n is 8, 16, 32, 64 or 128");
    MSA_WGMMA_E4M3(128, MSA_D64, 64, 65, 66, MSA_F64(d));
  }
}

/// The same with A in registers, n = 128 and B's rows in memory along n ([k][n]).
template <Operand type>
__device__ inline void wgmma_along_n(float (&d)[64], const std::uint32_t (&a)[4],
                                     std::uint32_t b_matrix, int keep_d) {
  if constexpr (type == Operand::bf16) {
    MSA_WGMMA_REGISTERS(128, bf16, MSA_D64, 64, 65, 66, 67, 68, 69, "1", MSA_F64(d));
  } else {
    MSA_WGMMA_REGISTERS(128, f16, MSA_D64, 64, 65, 66, 67, 68, 69, "1", MSA_F64(d));
  }
}

#undef MSA_F4
#undef MSA_F8
#undef MSA_F16
#undef MSA_F32
#undef MSA_F64
#undef MSA_D4
#undef MSA_D8
#undef MSA_D16
#undef MSA_D32
#undef MSA_D64
#undef MSA_WGMMA
#undef MSA_MATRIX
#undef MSA_WGMMA_SHARED
#undef MSA_WGMMA_REGISTERS
#undef MSA_WGMMA_E4M3

/// Four 8 x 8 matrices of 16-bit elements, transposed, into shared memory: lane l names the row of
/// 16 bytes that gets column l mod 8 of matrix l / 8.
__device__ inline void store_matrices_transposed(std::uint32_t row, const std::uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

/// Four of them as they are: lane l names the row of matrix l / 8 that gets its row l mod 8.
__device__ inline void store_matrices(std::uint32_t row, const std::uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

}  // namespace msa::cuda::ptx
