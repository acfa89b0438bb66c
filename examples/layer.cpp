// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
// One attention layer of a serving engine: pages from the allocator, the step split by the metadata
// builder, then layer_step, which writes the caches, selects blocks and attends.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "bf16.h"
#include "msa/msa.h"

namespace {

using msa::ConstTensor;
using msa::DType;
using msa::Tensor;

// MiniMax-M3 at tensor parallel size 4: 16 query heads, one KV head, one index head.
constexpr std::int64_t hq = 16, hkv = 1, hi = 1, topk = 16;
constexpr std::int64_t row = (hq + 2 * hkv + hi + 1) * 128;  // q | k | v | index_q | index_k
constexpr std::int64_t pages = 64, max_positions = 4096;

/// cos and sin of position p and pair i: angle p / 5e6^(i / 32).
std::vector<float> rotary_table() {
  std::vector<float> table(max_positions * 64);
  for (std::int64_t p = 0; p < max_positions; ++p) {
    for (int i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(p) * std::pow(5e6, -i / 32.0);
      table[p * 64 + i] = static_cast<float>(std::cos(angle));
      table[p * 64 + 32 + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

/// What a layer keeps between steps. Caches start with arbitrary contents; nothing clears them.
struct Layer {
  std::vector<std::uint16_t> kv_cache = std::vector<std::uint16_t>(pages * hkv * 128 * 256);
  std::vector<std::uint16_t> index_cache = std::vector<std::uint16_t>(pages * 128 * 128);
  std::vector<float> norm = std::vector<float>(128, 0.0f);  // Gemma: applied as 1 + w
  std::vector<float> cos_sin = rotary_table();
  msa::PageAllocator allocator{{.pages = pages}};
};

/// A request in this step: its pages, its new tokens' qkv rows, its length with them.
struct Piece {
  const msa::PageAllocator::Sequence* sequence;
  const std::uint16_t* qkv;  // [query_len, row]
  std::int64_t query_len;
  std::int64_t seq_len;
};

/// Runs one step and returns out [T, hq, 128].
std::vector<std::uint16_t> step(Layer& layer, const std::vector<Piece>& pieces) {
  // The step as a scheduler describes it.
  std::vector<std::int32_t> query_start = {0}, seq_lens;
  std::vector<std::int64_t> positions, slots;
  std::vector<std::uint16_t> qkv;
  std::size_t width = 0;
  for (const Piece& piece : pieces) width = std::max(width, piece.sequence->pages().size());
  std::vector<std::int32_t> table(pieces.size() * width, -1);
  for (std::size_t r = 0; r < pieces.size(); ++r) {
    const Piece& piece = pieces[r];
    query_start.push_back(static_cast<std::int32_t>(query_start.back() + piece.query_len));
    seq_lens.push_back(static_cast<std::int32_t>(piece.seq_len));
    for (std::int64_t p = piece.seq_len - piece.query_len; p < piece.seq_len; ++p) {
      positions.push_back(p);
      slots.push_back(piece.sequence->slot(p));
    }
    qkv.insert(qkv.end(), piece.qkv, piece.qkv + piece.query_len * row);
    std::ranges::copy(piece.sequence->pages(), table.begin() + r * width);
  }
  const std::int64_t requests = static_cast<std::int64_t>(pieces.size());
  const std::int64_t tokens = query_start.back();

  msa::StepInputs inputs;
  inputs.query_start_loc = query_start;
  inputs.seq_lens_host = seq_lens;
  inputs.seq_lens = ConstTensor::dense(seq_lens.data(), DType::i32, {requests});
  inputs.block_table =
      ConstTensor::dense(table.data(), DType::i32, {requests, static_cast<std::int64_t>(width)});
  inputs.slot_mapping = ConstTensor::dense(slots.data(), DType::i64, {tokens});
  inputs.num_actual_tokens = tokens;
  const msa::SparseMetadata metadata = msa::MetadataBuilder(1).build(inputs);

  std::vector<std::uint16_t> q(tokens * hq * 128), index_q(tokens * hi * 128);
  std::vector<std::uint16_t> out(tokens * hq * 128);
  std::vector<std::int32_t> selection(tokens * hi * topk);
  const ConstTensor norm = ConstTensor::dense(layer.norm.data(), DType::f32, {128});

  msa::LayerStepArgs args;
  args.write.qkv = ConstTensor::dense(qkv.data(), DType::bf16, {tokens, row});
  args.write.positions = ConstTensor::dense(positions.data(), DType::i64, {tokens});
  args.write.cos_sin = ConstTensor::dense(layer.cos_sin.data(), DType::f32, {max_positions, 64});
  args.write.q_norm = args.write.k_norm = norm;
  args.write.index_q_norm = args.write.index_k_norm = norm;
  args.write.slot_mapping = args.write.index_slot_mapping = inputs.slot_mapping;
  args.write.q_out = Tensor::dense(q.data(), DType::bf16, {tokens, hq, 128});
  args.write.kv_cache = Tensor::dense(layer.kv_cache.data(), DType::bf16, {pages, hkv, 128, 256});
  args.write.index_q_out = Tensor::dense(index_q.data(), DType::bf16, {tokens, hi, 128});
  args.write.index_cache = Tensor::dense(layer.index_cache.data(), DType::bf16, {pages, 128, 128});
  args.write.num_tokens = tokens;
  args.index.batch = metadata.batch;  // both caches use the same page ids here
  args.index.selection = Tensor::dense(selection.data(), DType::i32, {tokens, hi, topk});
  args.attend.batch = metadata.batch;
  args.attend.out = Tensor::dense(out.data(), DType::bf16, {tokens, hq, 128});
  std::vector<std::byte> workspace(msa::workspace_size(args));
  args.index.workspace = args.attend.workspace = {workspace.data(), workspace.size()};
  msa::layer_step(args);

  std::printf("step of %lld tokens (%lld decode, %lld prefill requests); last row selects blocks",
              static_cast<long long>(tokens), static_cast<long long>(metadata.num_decodes),
              static_cast<long long>(metadata.num_prefills));
  for (std::int64_t k = 0; k < topk; ++k) {
    const std::int32_t block = selection[(tokens - 1) * hi * topk + k];
    if (block >= 0) std::printf(" %d", block);
  }
  std::printf("\n");
  return out;
}

msa::PageAllocator::Sequence pages_for(Layer& layer, std::int64_t tokens) {
  auto sequence =
      layer.allocator.begin({.hashes = {}, .prompt_tokens = tokens, .reserve_tokens = tokens});
  return std::move(sequence.value());
}

}  // namespace

int main() {
  constexpr std::int64_t length_a = 2500, length_b = 200;
  const std::vector<std::uint16_t> tokens_a = normal_bf16((length_a + 1) * row, 1);
  const std::vector<std::uint16_t> tokens_b = normal_bf16(length_b * row, 2);

  // A's prompt alone; then A's next token as decode while B's prompt comes in.
  Layer layer;
  const auto a = pages_for(layer, length_a + 1);
  const auto b = pages_for(layer, length_b);
  step(layer, {{&a, tokens_a.data(), length_a, length_a}});
  const auto out = step(layer, {{&a, &tokens_a[length_a * row], 1, length_a + 1},
                                {&b, tokens_b.data(), length_b, length_b}});

  // The same token as the last one of a single prompt, in another layer's caches.
  Layer other;
  const auto whole = pages_for(other, length_a + 1);
  const auto expected = step(other, {{&whole, tokens_a.data(), length_a + 1, length_a + 1}});
  float difference = 0, largest = 0;
  for (std::int64_t i = 0; i < hq * 128; ++i) {
    const float value = to_float(out[i]);
    largest = std::max(largest, std::abs(value));
    difference =
        std::max(difference, std::abs(value - to_float(expected[length_a * hq * 128 + i])));
  }
  std::printf(
      "A's decode token against the same token in one prefill: largest difference %.5f of "
      "%.5f, on backend %s\n",
      difference, largest, msa::last_backend());
  return largest > 0 && difference <= 0.01f * largest ? 0 : 1;
}
