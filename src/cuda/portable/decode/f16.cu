// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/portable/decode/launch.cuh"

namespace msa::cuda::portable::decode {

void launch_f16(const Params& params, int tiles, Stream stream) {
  launch_cache<F16Cache>(params, tiles, stream);
}

}  // namespace msa::cuda::portable::decode
