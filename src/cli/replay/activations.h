// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cli/replay/content.h"
#include "msa/types.h"

/// \file
/// Seeded qkv rows whose block selections are local, as those of a real model are.

namespace msa::replay {

/// Heads of one layer at a tensor-parallel shard.
struct LayerShape {
  std::int64_t q_heads = 16;     ///< Hq
  std::int64_t kv_heads = 1;     ///< Hkv
  std::int64_t index_heads = 1;  ///< Hi

  /// Elements of a qkv row: q | k | v | index_q | index_k.
  constexpr std::int64_t row_elements() const {
    return (q_heads + 2 * kv_heads + index_heads + 1) * head_dim;
  }
};

/// Draws the row of a token as a function of the seed, the text around the token (Content) and its
/// position alone, so that shared prefixes and recomputed tokens get the bits they had before.
///
/// q, k and v are unit-variance noise. The index vectors carry a signal in elements 64..127, which
/// rotary embedding leaves alone:
///  - each block of 128 tokens has a topic, drawn around the topic of its 512-token group; index_k
///  is
///    the block's topic plus noise, strong in one token of eight and weak in the others;
///  - index_q of head h is the sum of the topics of 8 earlier blocks plus a little noise. One of
///  them
///    is block 0; each other one is drawn anew every 32, 64, … 2048 tokens, at a distance that is
///    uniform on a logarithmic scale.
class Activations {
 public:
  Activations(const LayerShape& shape, DType type, std::uint64_t seed);

  /// Writes the rows of tokens [first, first + count) to `rows`, `[count, row_elements()]` of the
  /// type. Rows at and past `kept` are drafts that turn out wrong: other text at the same position.
  void fill(const Content& content, std::int64_t first, std::int64_t count, std::int64_t kept,
            std::uint16_t* rows) const;

  /// 128 small numbers of the type, a norm weight; `which` tells them apart.
  std::vector<std::uint16_t> norm_weight(std::uint64_t which) const;

 private:
  static constexpr int topics = 8;
  using Half = std::array<float, head_dim / 2>;  // elements 64..127

  void add_topic(const Content& content, std::int64_t block, float weight, Half& sum) const;
  std::int64_t target(const Content& content, std::int64_t position, int head, int topic) const;
  Half query_signal(const Content& content, std::int64_t position, int head) const;
  void write_signal(std::uint64_t key, float signal, const Half& half, float noise,
                    std::uint16_t* out) const;
  const float* noise(std::uint64_t key) const;

  LayerShape shape_;
  DType type_;
  std::uint64_t seed_;
  std::vector<float> noise_;       // unit-variance noise: rows are windows of it
  std::vector<std::uint16_t> q_;   // the same for q, in the rows' type
  std::vector<std::uint16_t> kv_;  // for k and v: never equal to a window of q
};

}  // namespace msa::replay
