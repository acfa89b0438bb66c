// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include "api/backend.h"
#include "msa/tensor.h"

/// \file
/// Tensor maps of cache views: what the copy engine of SM90 needs to fetch (page, head) tiles
/// through any strides.

namespace msa::cuda {

/// Why the copy engine cannot read this half of a cache: it wants addresses and strides that are
/// multiples of 16 bytes, the latter below 2^40 bytes.
Reasons tensor_map_reasons(const char* name, const ConstTensor& view);

/// A map of `view` [pages, Hkv, 128, columns] whose boxes are 128 tokens by 128 bytes of one head
/// of one page, written to shared memory with the 128-byte swizzle. Coordinates: element, token,
/// head, page. A host computation of about 0.3 µs; made for every call, so that no address is kept.
CUtensorMap tile_map(const char* op, const ConstTensor& view);

}  // namespace msa::cuda
