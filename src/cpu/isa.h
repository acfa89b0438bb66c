// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// \file
/// Run-time choice of the instruction set.
///
/// Each operator's source compiles its kernels once per target through Highway's foreach_target.h
/// (header-only use: Highway's own dispatcher lives in a shared library that we do not link) and
/// picks one with MSA_CPU_CHOOSE(function), which names the function of the chosen set.

namespace msa::cpu {

/// Instruction sets of this build, lowest first.
enum class Isa { baseline, avx2, avx512 };

/// "baseline" (SSE2 on x86-64, NEON on Arm), "avx2", "avx512".
const char* name(Isa isa);

/// What this build holds and this machine can execute, lowest first.
std::vector<Isa> available_isas();

/// The set in use: the highest available, or what `MSA_CPU_ISA` names where that is available. Read
/// once; a value that names no available set is an Error.
Isa chosen_isa();

/// Forces a set for tests, which run every available one in one process.
void set_isa_for_testing(Isa isa);

}  // namespace msa::cpu

/// Targets that foreach_target.h compiles besides the baseline: the two steps that matter for f32
/// products. Included before hwy headers by every kernel source.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#define MSA_CPU_CHOOSE(function)                                                 \
  (::msa::cpu::chosen_isa() == ::msa::cpu::Isa::avx512 ? &N_AVX3::function       \
   : ::msa::cpu::chosen_isa() == ::msa::cpu::Isa::avx2 ? &N_AVX2::function       \
                                                       : &N_SSE2::function)
#else
// Scalable vectors cannot live in arrays, which our register tiles need: NEON serves Arm.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define MSA_CPU_CHOOSE(function) (&HWY_STATIC_NAMESPACE::function)
#endif
