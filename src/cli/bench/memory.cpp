// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <utility>
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

BenchMemory::BenchMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) throw std::bad_alloc();
  madvise(data_, bytes, MADV_HUGEPAGE);
}

BenchMemory::BenchMemory(BenchMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

BenchMemory& BenchMemory::operator=(BenchMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

BenchMemory::~BenchMemory() {
  if (bytes_ > 0) munmap(data_, bytes_);
}

void fill_normal(DType type, void* data, std::int64_t elements, std::uint64_t seed) {
  const std::vector<std::uint8_t>& block = block_of(type);
  const auto size = static_cast<std::int64_t>(size_of(type));
  std::int64_t at = SplitMix64(seed).below(block_elements);
  for (std::int64_t done = 0; done < elements;) {
    const std::int64_t count = std::min(elements - done, block_elements - at);
    std::memcpy(static_cast<char*>(data) + done * size, block.data() + at * size,
                static_cast<std::size_t>(count * size));
    done += count;
    at = 0;
  }
}

BenchMemory normal_memory(DType type, std::int64_t elements, std::uint64_t seed) {
  BenchMemory memory(static_cast<std::size_t>(elements) * size_of(type));
  fill_normal(type, memory.data(), elements, seed);
  return memory;
}

}  // namespace msa::cli
