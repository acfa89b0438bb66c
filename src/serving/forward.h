// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/check.h"
#include "msa/layer.h"

/// \file
/// What the forward calls of the serving layer share.

namespace msa {

/// The layer's metadata; null in a profiling run, where there is none at all. A step that has
/// metadata, but none for this layer, is a mistake of the engine: an Error that names both.
const SparseMetadata* find_metadata(const char* call, const LayerContext& layer,
                                    const ForwardContext& context);

/// Rows of `heads` heads, `[rows, heads·128]` or `[rows, heads, 128]`, as the latter. Anything else
/// is reported under the argument's name and returned as it is.
ConstTensor view_by_head(Checker& check, const char* argument, const ConstTensor& rows,
                         std::int64_t heads);

}  // namespace msa
