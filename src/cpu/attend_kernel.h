// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cpu/attend_plan.h"

/// \file
/// The vector code of attend, one set of functions an instruction set.

namespace msa::cpu {

struct AttendKernel {
  /// The tile's rows from start to end; the union list is folded in groups of `group_blocks`
  /// blocks.
  void (*tile)(const AttendCall& call, const TileRows& tile, std::int64_t head,
               std::int64_t group_blocks);
  /// Groups [first, last) of a decode tile, into one partial (DecodeSplit::partial_floats()) each;
  /// `partials` is that of group 0.
  void (*groups)(const AttendCall& call, const TileRows& tile, std::int64_t head,
                 std::int64_t first, std::int64_t last, float* partials);
  /// Rows of a decode tile from the partials of its groups, which it overwrites.
  void (*fold)(const AttendCall& call, const TileRows& tile, std::int64_t head, float* partials);
};

/// The functions of the instruction set in use.
AttendKernel attend_kernel();

}  // namespace msa::cpu
