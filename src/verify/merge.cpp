// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/merge.h"

#include "verify/verify.h"

namespace msa::verify {

void add_merge_cases(std::vector<Case>&) {}

}  // namespace msa::verify
