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

/// What rows of heads must be; `heads_label` as in "Hq".
struct HeadRows {
  DTypes dtypes;
  std::int64_t tokens;  ///< T
  const char* heads_label;
  std::int64_t heads;
  bool output = false;
};

/// Rows `[≥ T, heads·128]` or `[≥ T, heads, 128]` as the latter. Where they are anything else, all
/// that is wrong is reported and the argument settled, so that the operator can be asked about the
/// others.
ConstTensor view_by_head(Checker& check, const char* argument, const ConstTensor& rows,
                         const HeadRows& rule);

}  // namespace msa
