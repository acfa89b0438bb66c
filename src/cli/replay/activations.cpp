// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/numeric.h"

namespace msa::replay {
namespace {

constexpr std::uint64_t pool_windows = std::uint64_t{1} << 19;  // start positions of a window
constexpr float topic_share = 0.6f;        // of a block topic's energy: its group's; rest its own
constexpr float query_signal_gain = 1.4f;  // index_q is nearly all signal
constexpr float query_noise = 0.12f;       // sets the churn from token to token
constexpr float key_noise = 0.5f;
constexpr float strong_key = 1.0f;
constexpr float weak_key = 0.3f;
constexpr std::uint64_t strong_every = 8;

/// Unit-variance, bell-shaped: the sum of eight uniform 16-bit numbers. Integers until the last
/// step, so that every machine draws the same bits.
float draw_normal(std::uint64_t key) {
  std::int64_t sum = 0;
  for (std::uint64_t half = 0; half < 2; ++half) {
    const std::uint64_t bits = mix(key, half);
    for (int i = 0; i < 4; ++i) sum += static_cast<std::int64_t>((bits >> (16 * i)) & 0xffff);
  }
  constexpr float mean_times_8 = 4 * 65535.0f;
  constexpr float deviation = 53509.4f;  // sqrt(8 / 12) · 65536
  return (static_cast<float>(sum) - mean_times_8) / deviation;
}

/// Round to nearest even for |x| < 65504; results below the smallest normal number become 0.
std::uint16_t float_to_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
  constexpr std::uint32_t smallest_normal = 0x38800000;  // 2^-14
  if (magnitude < smallest_normal) return static_cast<std::uint16_t>(sign);
  const std::uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

std::uint16_t to_type(DType type, float x) {
  return type == DType::f16 ? float_to_f16(x) : float_to_bf16(x);
}

/// Element 0 … of a token's index rows is noise without signal.
constexpr std::int64_t half_dim = head_dim / 2;

}  // namespace

Activations::Activations(const LayerShape& shape, DType type, std::uint64_t seed)
    : shape_(shape), type_(type), seed_(mix(seed, 4)) {
  const std::uint64_t row = static_cast<std::uint64_t>(shape.row_elements());
  const std::uint64_t size = pool_windows + row;
  noise_.resize(size);
  q_.resize(size);
  kv_.resize(size);
  for (std::uint64_t i = 0; i < size; ++i) {
    noise_[i] = draw_normal(mix(seed_, 1, i));
    q_[i] = to_type(type, draw_normal(mix(seed_, 2, i)));
    kv_[i] = to_type(type, draw_normal(mix(seed_, 3, i)));
  }
}

std::vector<std::uint16_t> Activations::norm_weight(std::uint64_t which) const {
  std::vector<std::uint16_t> weight(head_dim);
  const float* draws = noise(mix(seed_, 5, which));
  for (std::size_t d = 0; d < weight.size(); ++d) weight[d] = to_type(type_, 0.1f * draws[d]);
  return weight;
}

const float* Activations::noise(std::uint64_t key) const {
  return noise_.data() + below(key, pool_windows);
}

void Activations::add_topic(const Content& content, std::int64_t block, float weight,
                            Half& sum) const {
  const std::int64_t blocks_per_group = group_tokens / page_size;
  const std::uint64_t group = mix(seed_, 6, content.group_key(block / blocks_per_group));
  const float* shared = noise(group);
  const float* own = noise(mix(group, static_cast<std::uint64_t>(block % blocks_per_group)));
  const float a = weight * std::sqrt(topic_share), b = weight * std::sqrt(1 - topic_share);
  for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += a * shared[d] + b * own[d];
}

/// The block that topic `topic` of a query at `position` points to.
std::int64_t Activations::target(const Content& content, std::int64_t position, int head,
                                 int topic) const {
  if (topic == 0) return 0;
  const std::int64_t period = std::int64_t{16} << topic;  // 32 … 2048 tokens
  const auto slot = static_cast<std::uint64_t>(std::int64_t{head} * topics + topic);
  const auto phase =
      static_cast<std::int64_t>(below(mix(seed_, 7, slot), static_cast<std::uint64_t>(period)));
  const std::int64_t epoch = (position + phase) / period;
  const std::int64_t since = std::max<std::int64_t>(epoch * period - phase, 0);
  const std::uint64_t key = mix(content.text_key(since), slot, static_cast<std::uint64_t>(epoch));
  const std::int64_t last = since / page_size;  // blocks 0 … last lie before or around `since`
  const auto octaves =
      static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(last) + 1));
  const std::uint64_t octave = below(mix(key, 1), octaves);
  const std::uint64_t distance =
      (std::uint64_t{1} << octave) - 1 + below(mix(key, 2), std::uint64_t{1} << octave);
  return std::max<std::int64_t>(last - static_cast<std::int64_t>(distance), 0);
}

Activations::Half Activations::query_signal(const Content& content, std::int64_t position,
                                            int head) const {
  Half sum{};
  const float weight = 1 / std::sqrt(static_cast<float>(topics));
  for (int topic = 0; topic < topics; ++topic) {
    add_topic(content, target(content, position, head, topic), weight, sum);
  }
  return sum;
}

void Activations::write_signal(std::uint64_t key, float signal, const Half& half, float noise_gain,
                               std::uint16_t* out) const {
  const float* draws = noise(key);
  std::array<float, head_dim> row;
  for (std::size_t d = 0; d < half_dim; ++d) {
    row[d] = noise_gain * draws[d];
    row[half_dim + d] = noise_gain * draws[half_dim + d] + signal * half[d];
  }
  for (std::size_t d = 0; d < row.size(); ++d) out[d] = to_type(type_, row[d]);
}

void Activations::fill(const Content& content, std::int64_t first, std::int64_t count,
                       std::int64_t kept, std::uint16_t* rows) const {
  const auto q_elements = static_cast<std::size_t>(shape_.q_heads * head_dim);
  const auto kv_elements = static_cast<std::size_t>(2 * shape_.kv_heads * head_dim);
  constexpr std::int64_t steady = 16;  // tokens with the same topics
  std::vector<Half> signal(static_cast<std::size_t>(shape_.index_heads));
  Half topic{};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = first + i;
    const std::uint64_t text =
        mix(content.text_key(position), static_cast<std::uint64_t>(position));
    const std::uint64_t key = i < kept ? text : mix(text, 8);
    if (i == 0 || position % steady == 0) {
      for (std::size_t h = 0; h < signal.size(); ++h) {
        signal[h] = query_signal(content, position - position % steady, static_cast<int>(h));
      }
    }
    if (i == 0 || position % page_size == 0) {
      topic = {};
      add_topic(content, position / page_size, 1, topic);
    }
    std::uint16_t* row = rows + i * shape_.row_elements();
    std::memcpy(row, q_.data() + below(mix(key, 1), pool_windows), q_elements * 2);
    row += q_elements;
    std::memcpy(row, kv_.data() + below(mix(key, 2), pool_windows), kv_elements * 2);
    row += kv_elements;
    for (std::size_t h = 0; h < signal.size(); ++h, row += head_dim) {
      write_signal(mix(key, 3, h), query_signal_gain, signal[h], query_noise, row);
    }
    const bool strong = mix(key, 4) % strong_every == 0;
    write_signal(mix(key, 5), strong ? strong_key : weak_key, topic, key_noise, row);
  }
}

}  // namespace msa::replay
