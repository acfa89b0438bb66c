// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/attend_problem.h"

namespace msa::verify {

void add_attend_cases(std::vector<Case>& cases) {
  add_attend_grid(cases);
  add_attend_selection(cases);
  add_attend_values(cases);
  add_attend_bits(cases);
  add_attend_memory(cases);
  add_attend_reports(cases);
  add_attend_shards(cases);
}

}  // namespace msa::verify
