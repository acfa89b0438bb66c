// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "api/backend.h"
#include "cpu/backend.h"
#ifdef MSA_HAS_CUDA
#include "cuda/backend.h"
#endif

namespace msa {

std::span<const Backend* const> registered_backends() {
  static const Backend* const backends[] = {
#ifdef MSA_HAS_CUDA
      &cuda::sm90_backend(),
      &cuda::portable_backend(),
#endif
      &cpu::backend(),
  };
  return backends;
}

}  // namespace msa
