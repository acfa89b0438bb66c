// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "msa/tensor.h"

namespace msa::cuda {

/// A factor whose device form is read when the kernel runs, so that it may change between replays.
struct ScaleView {
  ScaleView() = default;
  explicit ScaleView(const Scale& scale)
      : pointer(scale.tensor.ptr<float>()), number(scale.value) {}

  __device__ float value() const { return pointer != nullptr ? *pointer : number; }

  const float* pointer = nullptr;
  float number = 1;
};

}  // namespace msa::cuda
