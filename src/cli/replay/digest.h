// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// \file
/// Hashes: a bit mixer for seeded draws, and XXH64 for digests.

namespace msa::replay {

/// A bijection of 64 bits that leaves no pattern (the finalizer of SplitMix64).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
/// One key from two; the order matters.
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b); }
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return mix(mix(a, b), c);
}

/// A number in [0, n) from random bits.
constexpr std::uint64_t below(std::uint64_t bits, std::uint64_t n) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

/// XXH64 of `bytes` bytes: four independent lanes, some 10 GB/s, well spread. The same value as
/// `xxhsum -H1` prints for the same bytes and seed 0 on a little-endian machine.
inline std::uint64_t xxh64(const void* data, std::size_t bytes, std::uint64_t seed) {
  constexpr std::uint64_t p1 = 0x9E3779B185EBCA87u, p2 = 0xC2B2AE3D27D4EB4Fu,
                          p3 = 0x165667B19E3779F9u, p4 = 0x85EBCA77C2B2AE63u,
                          p5 = 0x27D4EB2F165667C5u;
  const auto round = [](std::uint64_t lane, std::uint64_t input) {
    return std::rotl(lane + input * p2, 31) * p1;
  };
  const auto* p = static_cast<const unsigned char*>(data);
  const auto read = [&p]<class T>(T word) {
    std::memcpy(&word, p, sizeof word);
    p += sizeof word;
    return static_cast<std::uint64_t>(word);
  };
  std::size_t left = bytes;
  std::uint64_t h = seed + p5;
  if (left >= 32) {
    std::uint64_t lane[4] = {seed + p1 + p2, seed + p2, seed, seed - p1};
    for (; left >= 32; left -= 32) {
      for (std::uint64_t& l : lane) l = round(l, read(std::uint64_t{}));
    }
    h = std::rotl(lane[0], 1) + std::rotl(lane[1], 7) + std::rotl(lane[2], 12) +
        std::rotl(lane[3], 18);
    for (const std::uint64_t l : lane) h = (h ^ round(0, l)) * p1 + p4;
  }
  h += bytes;
  for (; left >= 8; left -= 8) h = std::rotl(h ^ round(0, read(std::uint64_t{})), 27) * p1 + p4;
  for (; left >= 4; left -= 4) h = std::rotl(h ^ (read(std::uint32_t{}) * p1), 23) * p2 + p3;
  for (; left > 0; --left) h = std::rotl(h ^ (read(std::uint8_t{}) * p5), 11) * p1;
  h = (h ^ (h >> 33)) * p2;
  h = (h ^ (h >> 29)) * p3;
  return h ^ (h >> 32);
}

}  // namespace msa::replay
