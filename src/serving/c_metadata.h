// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "msa/layer.h"

/// \file
/// The handle of a split step: built by one part of the C ABI, read by another.

struct msa_sparse_metadata {
  msa::SparseMetadata metadata;
};
