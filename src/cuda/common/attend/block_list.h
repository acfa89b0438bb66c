// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file
/// Where the list of an item's blocks lies.

namespace msa::cuda {

/// What the rows of an item chose: the distinct valid blocks, ascending.
struct ListView {
  std::int32_t* id;    // [capacity]
  std::int32_t* rows;  // [capacity] bit r: row r chose the block
};
/// Bits that sort the blocks of a request, 1,024 (131,072 tokens) at a time.
inline constexpr int bitmap_words = 32;

}  // namespace msa::cuda
