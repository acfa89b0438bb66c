// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/attend_kernel.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "cpu/isa.h"
#include "cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attend_kernel.cpp"
#include "hwy/foreach_target.h"
// Each target's copy of the vector code comes after foreach_target.h.
#include "cpu/attend-inl.h"

#if HWY_ONCE
namespace msa::cpu {

AttendKernel attend_kernel() {
  return {MSA_CPU_CHOOSE(attend_tile), MSA_CPU_CHOOSE(attend_groups), MSA_CPU_CHOOSE(attend_fold)};
}

}  // namespace msa::cpu
#endif  // HWY_ONCE
