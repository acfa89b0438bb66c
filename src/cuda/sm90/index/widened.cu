// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/sm90/index/launch.cuh"

namespace msa::cuda::sm90::index {

void launch_widened(const ScoreParams& p, Output output, int device, Stream stream) {
  launch_keys<WidenedKeys>(p, output, device, stream);
}

}  // namespace msa::cuda::sm90::index
