// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/portable/prefill/launch.cuh"

namespace msa::cuda::portable::prefill {

void launch_e4m3(Params p, std::int64_t items, int device, Stream stream) {
  launch_type<DType::e4m3>(p, items, device, stream);
}

}  // namespace msa::cuda::portable::prefill
