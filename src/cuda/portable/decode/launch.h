// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/portable/decode/params.h"
#include "msa/types.h"

namespace msa::cuda::portable::decode {

/// One source file each, as each holds two instances of the kernel.
void launch_bf16(const Params& params, int tiles, Stream stream);
void launch_f16(const Params& params, int tiles, Stream stream);
void launch_e4m3(const Params& params, int tiles, Stream stream);
void launch_e5m2(const Params& params, int tiles, Stream stream);

}  // namespace msa::cuda::portable::decode
