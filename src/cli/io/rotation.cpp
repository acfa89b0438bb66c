// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/rotation.h"

#include <cmath>

namespace msa::cli {

std::vector<float> rotation_table(std::int64_t positions) {
  constexpr double theta = 5e6;
  constexpr std::int64_t pairs = rotary_elements / 2;
  std::vector<float> table(static_cast<std::size_t>(positions * rotary_elements));
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
    for (std::int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      float* row = table.data() + p * rotary_elements;
      row[i] = static_cast<float>(std::cos(angle));
      row[pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace msa::cli
