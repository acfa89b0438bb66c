// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/index/launch.h"
#include "cuda/portable/index/params.h"

/// \file
/// Host side of the score kernel, one function a source.

namespace msa::cuda::portable::index {

/// bf16 keys by queries that bf16 holds, and by f16 queries.
void launch_bf16(const ScoreParams& p, Output output, const Origin& origin);
void launch_split(const ScoreParams& p, Output output, const Origin& origin);
/// e4m3 by e4m3 in the tensor cores' own accumulator, on devices that have it.
void launch_e4m3(const ScoreParams& p, Output output, const Origin& origin);
/// e4m3 widened to f16.
void launch_widened(const ScoreParams& p, Output output, const Origin& origin);

}  // namespace msa::cuda::portable::index
