// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "msa/types.h"

/// \file
/// One launcher, and one source file, for each cache type. They complete `params` with what depends
/// on the instance: the ring's slots and the cluster.

namespace msa::cuda::sm90::decode {

struct Params;

void launch_bf16(Params& params, int device, Stream stream);
void launch_f16(Params& params, int device, Stream stream);
void launch_e4m3(Params& params, int device, Stream stream);
void launch_e5m2(Params& params, int device, Stream stream);

}  // namespace msa::cuda::sm90::decode
