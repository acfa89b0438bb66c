// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/index/launch.cuh"

namespace msa::cuda::sm90::index {

void launch_e4m3(const ScoreParams& p, Output output, int device, Stream stream) {
  launch_keys<E4m3Keys>(p, output, device, stream);
}

}  // namespace msa::cuda::sm90::index
