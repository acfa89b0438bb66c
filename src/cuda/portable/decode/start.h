// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/launch.h"
#include "cuda/portable/decode/params.h"

namespace msa::cuda::portable::decode {

/// One CTA each of `ctas`, that may set itself up while the call before ends.
inline void start(void (*kernel)(Params), std::int64_t ctas, int cta_threads,
                  std::size_t shared_bytes, Stream stream, const Params& p) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(cta_threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, p), "attend", "launch");
}

}  // namespace msa::cuda::portable::decode
