// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/tiles/kernels.h"

#include "cpu/isa.h"

namespace msa::cpu::tiles {

const Kernels* kernels() {
  switch (chosen_isa()) {
#ifdef MSA_CPU_TILES
    case Isa::amx:
      return &amx_kernels;
    case Isa::avx512_bf16:
      return &avx512_bf16_kernels;
#endif
    default:
      return nullptr;
  }
}

}  // namespace msa::cpu::tiles
