// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/sm90/common/call.cuh"
#include "cuda/sm90/decode/plan.h"

/// \file
/// What the decode kernel is launched with.

namespace msa::cuda::sm90::decode {

struct Params : Call {
  int m;           // query tokens of a request
  int row_factor;  // see plan.h
  int rows;        // of an item
  int row_groups;  // items of a request and head
  Divisor by_kv_heads, by_row_groups;
  int capacity;  // rows · topk: the longest list
  int slots;     // of the ring
  int cluster;   // CTAs that share an item, a power of two
  int cluster_log2;
  int received_columns;  // see config.h
  int items;
};

}  // namespace msa::cuda::sm90::decode
