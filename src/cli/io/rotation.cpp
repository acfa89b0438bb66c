// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/rotation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/parallel.h"

namespace msa::cli {

std::vector<float> rotation_table(std::int64_t positions) {
  constexpr double theta = 5e6;
  constexpr std::int64_t pairs = rotary_elements / 2;
  std::array<double, pairs> frequency;
  for (std::size_t i = 0; i < pairs; ++i) {
    frequency[i] = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
  }
  std::vector<float> table(static_cast<std::size_t>(positions * rotary_elements));
  constexpr std::int64_t piece = 4096;  // positions of a task
  cpu::parallel_for((positions + piece - 1) / piece, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * piece, positions);
    for (std::int64_t p = task * piece; p < end; ++p) {
      float* row = table.data() + p * rotary_elements;
      for (std::size_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(p) * frequency[i];
        row[i] = static_cast<float>(std::cos(angle));
        row[pairs + i] = static_cast<float>(std::sin(angle));
      }
    }
  });
  return table;
}

}  // namespace msa::cli
