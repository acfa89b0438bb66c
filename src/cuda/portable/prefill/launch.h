// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "msa/types.h"

/// \file
/// One launcher, and one source file, for each cache type: a CTA an item.

namespace msa::cuda::portable::prefill {

struct Params;

void launch_bf16(Params params, std::int64_t items, int device, Stream stream);
void launch_f16(Params params, std::int64_t items, int device, Stream stream);
void launch_e4m3(Params params, std::int64_t items, int device, Stream stream);
void launch_e5m2(Params params, std::int64_t items, int device, Stream stream);

}  // namespace msa::cuda::portable::prefill
