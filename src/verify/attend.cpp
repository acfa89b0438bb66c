// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/attend.h"

#include "verify/verify.h"

namespace msa::verify {

void add_attend_cases(std::vector<Case>&) {}

}  // namespace msa::verify
