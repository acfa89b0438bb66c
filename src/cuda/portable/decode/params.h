// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/items.h"
#include "cuda/portable/decode/plan.h"

/// \file
/// What the decode kernels are launched with.

namespace msa::cuda::portable::decode {

struct Params : AttendCall, Items {
  bool kv_aligned;  // rows of K and V start at multiples of 16 bytes
  int splits;       // CTAs of an item
  int units;        // places of an item's partial results
  int share;        // units of a CTA, or 0: by the item's number of units
  char* workspace;  // [items][item_bytes(units)] where splits > 1
};

/// Units of a CTA, for an item of `units`. Of one row the host knows them: lists are as long as
/// topk but where the context is short. Rows with common pages have shorter lists than the longest.
MSA_HOST_DEVICE inline int share_of_item(const Params& p, int units) {
  return p.share != 0 ? p.share : share_of(units, p.splits);
}

}  // namespace msa::cuda::portable::decode
