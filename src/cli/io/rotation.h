// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

/// \file
/// The rotary embedding of MiniMax-M3.

namespace msa::cli {

/// Elements of a head that are rotated.
inline constexpr std::int64_t rotary_elements = 64;

/// cos and sin of every position, theta 5e6: [positions, 64], cos in columns 0..31, sin in 32..63.
std::vector<float> rotation_table(std::int64_t positions);

}  // namespace msa::cli
