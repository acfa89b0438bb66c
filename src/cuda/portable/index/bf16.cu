// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/portable/index/launch.cuh"

namespace msa::cuda::portable::index {

void launch_bf16(const ScoreParams& p, Output output, const Origin& origin) {
  launch_keys<Bf16Keys>(p, output, origin);
}

}  // namespace msa::cuda::portable::index
