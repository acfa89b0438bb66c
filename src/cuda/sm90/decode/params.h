// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/items.h"
#include "cuda/sm90/common/call.cuh"
#include "cuda/sm90/decode/plan.h"

/// \file
/// What the decode kernel is launched with.

namespace msa::cuda::sm90::decode {

struct Params : Call, Items {
  int slots;    // of the ring
  int cluster;  // CTAs that share an item, a power of two
  int cluster_log2;
  int received_columns;  // see config.h
};

}  // namespace msa::cuda::sm90::decode
