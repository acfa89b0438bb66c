// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "cli/io/generate.h"
#include "common/numeric.h"

namespace msa::cli {
namespace {

/// A prime, so that rows of a power of two of elements do not meet the same values again.
constexpr std::int64_t block_elements = 524'287;

/// One block of values of the type, made once.
const std::vector<std::uint8_t>& block_of(DType type) {
  static std::map<DType, std::vector<std::uint8_t>> blocks;
  std::vector<std::uint8_t>& block = blocks[type];
  if (!block.empty()) return block;
  block.resize(static_cast<std::size_t>(block_elements) * size_of(type));
  SplitMix64 random(2026);
  const auto uniform = [&] { return (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53; };
  for (std::int64_t i = 0; i < block_elements; ++i) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    store(type, block.data(), i, radius * std::cos(6.283185307179586 * uniform()));
  }
  return block;
}

}  // namespace

void fill_normal(DType type, PlacedBuffer& memory, Place& place, std::int64_t elements,
                 std::uint64_t seed) {
  const std::vector<std::uint8_t>& values = block_of(type);
  PlacedBuffer block(place, values.size());
  place.upload(block.data(), values.data(), values.size());
  const auto size = static_cast<std::int64_t>(size_of(type));
  std::int64_t at = SplitMix64(seed).below(block_elements);
  for (std::int64_t done = 0; done < elements;) {
    const std::int64_t count = std::min(elements - done, block_elements - at);
    place.copy(static_cast<char*>(memory.data()) + done * size,
               static_cast<const char*>(block.data()) + at * size,
               static_cast<std::size_t>(count * size));
    done += count;
    at = 0;
  }
  place.synchronize();  // the block goes away
}

PlacedBuffer normal_memory(Place& place, DType type, std::int64_t elements, std::uint64_t seed) {
  PlacedBuffer memory(place, static_cast<std::size_t>(elements) * size_of(type));
  fill_normal(type, memory, place, elements, seed);
  return memory;
}

}  // namespace msa::cli
