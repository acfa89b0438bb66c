// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <vector>

/// \file
/// Run-time choice of the instruction set.
///
/// Each operator's source compiles its kernels once per target through Highway's foreach_target.h
/// (header-only use: Highway's own dispatcher lives in a shared library that we do not link) and
/// picks one with MSA_CPU_CHOOSE(function), which names the function of the chosen set.

namespace msa::cpu {

/// Instruction sets of this build, lowest first.
enum class Isa { baseline, avx2, avx512, avx512_bf16, amx };

/// "baseline" (plain loops that the compiler turns into SSE2 on x86-64, NEON on Arm), "avx2",
/// "avx512", "avx512_bf16" and "amx" (as avx512, and products of bf16 where an operator has a
/// kernel of cpu/tiles).
const char* name(Isa isa);

/// What this build holds and this machine can execute, lowest first. A build whose flags ask for
/// more than the baseline holds no lower set. The first call asks the kernel for the right to use
/// AMX, for the whole process.
std::vector<Isa> available_isas();

/// The set in use: the highest available (but on Intel's processors not avx512_bf16, which is
/// slower than avx512 there), or what `MSA_CPU_ISA` names where that is available. Read once; a
/// value that names no available set is an Error.
Isa chosen_isa();

/// Forces a set for tests, which run every available one in one process.
void set_isa_for_testing(Isa isa);

template <class Function>
Function* choose_function(Function* baseline, std::type_identity_t<Function>* avx2,
                          std::type_identity_t<Function>* avx512) {
  const Isa isa = chosen_isa();
  if (isa >= Isa::avx512 && avx512 != nullptr) return avx512;
  if (isa >= Isa::avx2 && avx2 != nullptr) return avx2;
  return baseline;
}

}  // namespace msa::cpu

/// Targets that foreach_target.h compiles besides the baseline: the two steps that matter for f32
/// products. Included before hwy headers by every kernel source.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
// Off by default before GCC 12.3, which turns high halves of integer products into wrong code (GCC
// bug 106322). No kernel takes one, and the alternative has vectors of one lane.
#define HWY_BROKEN_EMU128 0
#else
// Scalable vectors cannot live in arrays, which our register tiles need: NEON serves Arm.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

/// The variant of `function` for the chosen set; null entries are sets that this build lacks
/// because its compiler flags already ask for more.
#if defined(__x86_64__)
#define MSA_CPU_CHOOSE(function)                                                         \
  ::msa::cpu::choose_function(&HWY_STATIC_DISPATCH(function), HWY_CHOOSE_AVX2(function), \
                              HWY_CHOOSE_AVX3(function))
#else
#define MSA_CPU_CHOOSE(function) (&HWY_STATIC_DISPATCH(function))
#endif
