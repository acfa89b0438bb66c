// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"

/// \file
/// attend for decode rows on SM90: see README.md.

namespace msa::cuda::sm90::decode {

/// Computes the rows of the batch's decode requests. Only launches.
void attend(const AttendArgs& args);

}  // namespace msa::cuda::sm90::decode
