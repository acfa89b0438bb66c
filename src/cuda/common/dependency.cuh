// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Programmatic dependent launch, on devices that have it.

namespace msa::cuda {

/// Returns when the calls before have ended and what they wrote can be read; nothing of theirs is
/// read, and nothing written, before. The call behind may start to set itself up from here on.
__device__ inline void meet_dependencies() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

}  // namespace msa::cuda
