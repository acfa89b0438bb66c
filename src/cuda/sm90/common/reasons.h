// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"

namespace msa::cuda::sm90 {

/// Why the SM90 kernels do not serve a call: the copy engine cannot read its cache.
Reasons reasons(const AttendArgs& args);

}  // namespace msa::cuda::sm90
