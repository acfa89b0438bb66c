// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/backend.h"

namespace msa::cpu {

/// The CPU backend.
const Backend& backend();

}  // namespace msa::cpu
