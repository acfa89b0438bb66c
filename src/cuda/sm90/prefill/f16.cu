// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/prefill/launch.cuh"

namespace msa::cuda::sm90::prefill {

void launch_f16(const Params& p, int device, Stream stream) {
  launch_type<DType::f16>(p, device, stream);
}

}  // namespace msa::cuda::sm90::prefill
