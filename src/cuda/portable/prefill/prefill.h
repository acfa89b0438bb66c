// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"

/// \file
/// attend for prefill rows by mma.sync, on every device from SM80 on: see README.md.

namespace msa::cuda::portable::prefill {

/// Computes the rows of a batch without decode requests. Only launches.
void attend(const AttendArgs& args);

}  // namespace msa::cuda::portable::prefill
