// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MSA_CUDA_HAS_NVTX 1
#endif

namespace msa::cuda {

/// A named range in a profiler's time line; nothing where no profiler listens.
class Range {
 public:
#ifdef MSA_CUDA_HAS_NVTX
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
#else
  explicit Range(const char*) {}
#endif
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace msa::cuda
