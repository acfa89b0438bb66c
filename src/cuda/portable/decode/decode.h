// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "msa/attend.h"

namespace msa::cuda::portable::decode {

/// Launches the decode rows of a validated call: rows [0, num_decodes · m).
void attend(const AttendArgs& args);

/// Bytes of workspace that they take.
std::size_t workspace_size(const AttendArgs& args);

}  // namespace msa::cuda::portable::decode
