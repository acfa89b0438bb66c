// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/index_problem.h"

namespace msa::verify {

void add_index_cases(std::vector<Case>& cases) {
  add_index_grid(cases);
  add_index_values(cases);
  add_index_bits(cases);
  add_index_memory(cases);
  add_index_reports(cases);
  add_index_select(cases);
}

}  // namespace msa::verify
