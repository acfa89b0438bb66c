// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "msa/export.h"
#include "msa/tensor.h"

/// \file
/// copy_pages: whole pages moved within or between caches.

namespace msa {

/// Arguments of copy_pages: main caches `[pages, Hkv, 128, 256]`, their K or V halves
/// `[pages, Hkv, 128, 128]`, or index caches `[pages, 128, 128]`.
struct CopyPagesArgs {
  ConstTensor src;    // [src pages, …], last stride 1
  Tensor dst;         // [dst pages, …] of src's type and page shape; may be the same memory
  ConstTensor pairs;  // [N, 2] i64: (source page, destination page)
  Stream stream;      ///< where the call runs
};

/// Copies page `pairs[i, 0]` of src over page `pairs[i, 1]` of dst, bit for bit, for all i. Either
/// side may be pinned host memory. A page that is both source and destination, or a destination
/// named twice, is the caller's error; a pair out of range is skipped, and reported under
/// MSA_CHECK=1.
///
/// \throws Error listing every argument that is wrong; nothing is written then.
/// Source: contract section 6.
MSA_API void copy_pages(const CopyPagesArgs& args);

}  // namespace msa
