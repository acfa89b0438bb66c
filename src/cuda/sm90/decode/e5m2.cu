// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/decode/launch.cuh"

namespace msa::cuda::sm90::decode {

void launch_e5m2(Params& p, int device, Stream stream) {
  launch_cache<E5m2Cache>(p, device, stream);
}

}  // namespace msa::cuda::sm90::decode
