// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "msa/types.h"

/// \file
/// One launcher, and one source file, for each cache type.

namespace msa::cuda::sm90::prefill {

struct Params;

void launch_bf16(const Params& params, int device, Stream stream);
void launch_f16(const Params& params, int device, Stream stream);
void launch_e4m3(const Params& params, int device, Stream stream);
void launch_e5m2(const Params& params, int device, Stream stream);

}  // namespace msa::cuda::sm90::prefill
