// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cli/io/generate.h"
#include "cli/io/rotation.h"
#include "cli/place.h"
#include "common/numeric.h"
#include "cuda/place/place.h"
#include "msa/layer.h"

/// \file
/// layer_step under CUDA graphs, as an engine uses it: captured once a batch bucket, replayed with
/// everything changed in place, beside eager calls on caches of their own. All bits are equal.

namespace msa {
namespace {

using cli::PlacedBuffer;
using cli::SplitMix64;

constexpr std::int64_t topk = 16;
constexpr std::int64_t max_positions = 8192;

/// A bucket: what a capture fixes.
struct Bucket {
  std::int64_t hq, hkv;
  DType kv, index;
  std::int64_t decodes, m;
  std::int64_t prefills = 0, prefill_tokens = 0;  // requests, and rows that they may have in all
  std::int64_t max_keys = 2600;                   // of a request

  std::int64_t requests() const { return decodes + prefills; }
  std::int64_t tokens() const { return decodes * m + prefill_tokens; }
  std::int64_t row() const { return (hq + 3 * hkv + 1) * head_dim; }
  std::int64_t columns() const { return (max_keys + page_size - 1) / page_size; }
  std::int64_t pages() const { return requests() * columns() + 1; }
};

std::string name_of(const Bucket& b) {
  return std::to_string(b.hq) + "/" + std::to_string(b.hkv) + " " + name(b.kv) + ", " +
         std::to_string(b.decodes) + " x " + std::to_string(b.m) + ", " +
         std::to_string(b.prefills) + " prefills";
}

double unit(SplitMix64& random) {
  return static_cast<double>(random.below(1 << 20)) * 0x1p-19 - 1;  // −1 to 1
}

/// Values of about unit size in host memory of a type; a cache has the same ones over and over, as
/// drawing them all takes seconds.
void fill(PlacedBuffer& memory, DType type, SplitMix64& random) {
  constexpr std::size_t most = (std::size_t{1} << 20) - 256;
  const std::size_t drawn = std::min(memory.bytes(), most);
  for (std::size_t i = 0; i < drawn / size_of(type); ++i) {
    store(type, memory.host(), static_cast<std::int64_t>(i), 2 * unit(random));
  }
  for (std::size_t at = drawn; at < memory.bytes(); at += drawn) {
    std::memcpy(memory.host_as<char>() + at, memory.host(), std::min(drawn, memory.bytes() - at));
  }
}

/// Arrays of a step, all of which a round changes.
class Step {
 public:
  Step(Place& place, const Bucket& b)
      : place_(place),
        b_(b),
        qkv_(place, bytes(b.tokens() * b.row(), DType::bf16)),
        norms_(place, bytes(4 * head_dim, DType::bf16)),
        cos_sin_(place, cli::rotation_table(max_positions)),
        positions_(place, bytes(b.tokens(), DType::i64)),
        slots_(place, bytes(b.tokens(), DType::i64)),
        index_slots_(place, bytes(b.tokens(), DType::i64)),
        lengths_(place, bytes(b.requests(), DType::i32)),
        table_(place, bytes(b.requests() * b.columns(), DType::i32)),
        index_table_(place, bytes(b.requests() * b.columns(), DType::i32)),
        begins_(place, bytes(b.prefills + 1, DType::i32)),
        contexts_(place, bytes(b.prefills, DType::i32)),
        scales_(place, bytes(2, DType::f32)) {
    SplitMix64 random(11);
    fill(norms_, DType::bf16, random);
    norms_.upload();
  }

  /// Other rows, lengths, pages and scales; the last decode requests become padding, prefill
  /// requests have 0 rows and more, and rows that none of them has are padding too.
  void change(std::uint64_t round) {
    SplitMix64 random(round * 1000003 + 17);
    fill(qkv_, DType::bf16, random);
    scales_.host_as<float>()[0] = static_cast<float>(0.02 + 0.02 * std::fabs(unit(random)));
    scales_.host_as<float>()[1] = static_cast<float>(0.02 + 0.02 * std::fabs(unit(random)));
    shuffle_pages(table_, random);
    shuffle_pages(index_table_, random);
    std::fill_n(slots_.host_as<std::int64_t>(), b_.tokens(), -1);
    std::fill_n(index_slots_.host_as<std::int64_t>(), b_.tokens(), -1);
    std::fill_n(positions_.host_as<std::int64_t>(), b_.tokens(), 0);
    const std::int64_t real = b_.decodes > 0 ? 1 + random.below(b_.decodes) : 0;
    std::int64_t row = 0;
    for (std::int64_t r = 0; r < b_.decodes; ++r, row += b_.m) {
      const bool padding = r >= real;
      const std::int64_t keys = padding ? 0 : b_.m + random.below(b_.max_keys - b_.m + 1);
      add_request(r, keys, padding ? 0 : b_.m, row);
    }
    std::int64_t left = b_.prefill_tokens;
    begins_.host_as<std::int32_t>()[0] = 0;
    for (std::int64_t i = 0; i < b_.prefills; ++i) {
      const std::int64_t most = std::min(left, b_.max_keys);
      const std::int64_t rows = i % 3 == 2 ? 0 : random.below(most + 1);
      const std::int64_t context = random.below(b_.max_keys - rows + 1);
      add_request(b_.decodes + i, context + rows, rows, row);
      begins_.host_as<std::int32_t>()[i + 1] =
          begins_.host_as<std::int32_t>()[i] + static_cast<std::int32_t>(rows);
      contexts_.host_as<std::int32_t>()[i] = static_cast<std::int32_t>(context);
      row += rows;
      left -= rows;
    }
    for (const PlacedBuffer* array : {&qkv_, &positions_, &slots_, &index_slots_, &lengths_,
                                      &table_, &index_table_, &begins_, &contexts_, &scales_}) {
      array->upload();
    }
  }

  /// Of one call on this step; outputs and caches are still to come.
  LayerStepArgs args() const {
    LayerStepArgs a;
    const std::int64_t tokens = b_.tokens();
    a.write.qkv = qkv_.view(DType::bf16, {tokens, b_.row()});
    a.write.positions = positions_.view(DType::i64, {tokens});
    a.write.cos_sin = cos_sin_.view(DType::f32, {max_positions, cli::rotary_elements});
    const Tensor norms = norms_.view(DType::bf16, {4, head_dim});
    ConstTensor* const weights[] = {&a.write.q_norm, &a.write.k_norm, &a.write.index_q_norm,
                                    &a.write.index_k_norm};
    for (std::int64_t i = 0; i < 4; ++i) {
      const Tensor row = norms.narrow(0, i, 1);
      *weights[i] = ConstTensor(row.data, row.dtype, {head_dim}, {1}, row.device);
    }
    a.write.slot_mapping = slots_.view(DType::i64, {tokens});
    a.write.index_slot_mapping = index_slots_.view(DType::i64, {tokens});
    if (is_fp8(b_.kv)) {
      const Tensor scales = scales_.view(DType::f32, {2});
      a.write.k_scale = Scale(ConstTensor(scales.narrow(0, 0, 1)));
      a.write.v_scale = Scale(ConstTensor(scales.narrow(0, 1, 1)));
    }
    a.write.num_tokens = tokens;
    a.write.stream = place_.stream();
    for (BatchMetadata* batch : {&a.index.batch, &a.attend.batch}) {
      batch->seq_lens = lengths_.view(DType::i32, {b_.requests()});
      batch->num_decodes = b_.decodes;
      batch->decode_query_len = b_.m;
      batch->num_prefills = b_.prefills;
      if (b_.prefills > 0) {
        batch->cu_seqlens_q = begins_.view(DType::i32, {b_.prefills + 1});
        batch->context_lens = contexts_.view(DType::i32, {b_.prefills});
      }
      batch->num_actual_tokens = tokens;
      batch->max_query_len = std::max(b_.m, std::min(b_.prefill_tokens, b_.max_keys));
      batch->max_seq_len = b_.max_keys;
    }
    a.index.batch.block_table = index_table_.view(DType::i32, {b_.requests(), b_.columns()});
    a.attend.batch.block_table = table_.view(DType::i32, {b_.requests(), b_.columns()});
    return a;
  }

  static std::size_t bytes(std::int64_t elements, DType type) {
    return static_cast<std::size_t>(elements) * size_of(type);
  }

 private:
  /// Pages of all requests, no page twice; page 0 stays a null page.
  void shuffle_pages(PlacedBuffer& table, SplitMix64& random) const {
    const std::vector<std::int32_t> pages =
        cli::table_rows(1, b_.pages() - 1, b_.pages() - 1, random.next());
    std::transform(pages.begin(), pages.end(), table.host_as<std::int32_t>(),
                   [](std::int32_t page) { return page + 1; });
  }

  void add_request(std::int64_t r, std::int64_t keys, std::int64_t rows, std::int64_t row) {
    lengths_.host_as<std::int32_t>()[r] = static_cast<std::int32_t>(keys);
    const auto slot = [&](const PlacedBuffer& table, std::int64_t position) {
      const std::int64_t page =
          table.host_as<std::int32_t>()[r * b_.columns() + position / page_size];
      return page * page_size + position % page_size;
    };
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t position = keys - rows + i;
      positions_.host_as<std::int64_t>()[row + i] = position;
      slots_.host_as<std::int64_t>()[row + i] = slot(table_, position);
      index_slots_.host_as<std::int64_t>()[row + i] = slot(index_table_, position);
    }
    // What lies past the request's pages names none.
    for (std::int64_t c = (keys + page_size - 1) / page_size; c < b_.columns(); ++c) {
      table_.host_as<std::int32_t>()[r * b_.columns() + c] = -1;
      index_table_.host_as<std::int32_t>()[r * b_.columns() + c] =
          std::numeric_limits<std::int32_t>::max();
    }
  }

  Place& place_;
  Bucket b_;
  PlacedBuffer qkv_, norms_;
  cli::PlacedVector<float> cos_sin_;
  PlacedBuffer positions_, slots_, index_slots_;
  PlacedBuffer lengths_, table_, index_table_, begins_, contexts_, scales_;
};

/// Caches and outputs of a sequence of steps.
class Layer {
 public:
  Layer(Place& place, const Bucket& b)
      : b_(b),
        cache_(place, Step::bytes(b.pages() * b.hkv * page_size * 2 * head_dim, b.kv)),
        index_cache_(place, Step::bytes(b.pages() * page_size * head_dim, b.index)),
        q_(place, Step::bytes(b.tokens() * b.hq * head_dim, DType::bf16)),
        index_q_(place, Step::bytes(b.tokens() * b.hkv * head_dim, b.index)),
        selection_(place, Step::bytes(b.tokens() * b.hkv * topk, DType::i32)),
        out_(place, Step::bytes(b.tokens() * b.hq * head_dim, DType::bf16)),
        lse_(place, Step::bytes(b.tokens() * b.hq, DType::f32)) {
    SplitMix64 random(5);
    fill(cache_, b.kv, random);
    fill(index_cache_, b.index, random);
    for (const PlacedBuffer* memory : outputs()) {
      std::memset(memory->host(), 0xab, memory->bytes());
      memory->upload();
    }
    cache_.upload();
    index_cache_.upload();
  }

  void complete(LayerStepArgs& a) const {
    const std::int64_t tokens = b_.tokens();
    a.write.q_out = q_.view(DType::bf16, {tokens, b_.hq, head_dim});
    a.write.kv_cache = KVCache(cache_.view(b_.kv, {b_.pages(), b_.hkv, page_size, 2 * head_dim}));
    a.write.index_q_out = index_q_.view(b_.index, {tokens, b_.hkv, head_dim});
    a.write.index_cache = index_cache_.view(b_.index, {b_.pages(), page_size, head_dim});
    a.index.selection = selection_.view(DType::i32, {tokens, b_.hkv, topk});
    a.attend.out = out_.view(DType::bf16, {tokens, b_.hq, head_dim});
    a.attend.lse = lse_.view(DType::f32, {tokens, b_.hq});
  }

  std::vector<const PlacedBuffer*> outputs() const {
    return {&q_, &index_q_, &selection_, &out_, &lse_};
  }
  std::vector<const PlacedBuffer*> caches() const { return {&cache_, &index_cache_}; }

 private:
  Bucket b_;
  PlacedBuffer cache_, index_cache_, q_, index_q_, selection_, out_, lse_;
};

void expect_same(const std::vector<const PlacedBuffer*>& a,
                 const std::vector<const PlacedBuffer*>& b, const std::string& what) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i]->download();
    b[i]->download();
    ASSERT_EQ(std::memcmp(a[i]->host(), b[i]->host(), a[i]->bytes()), 0) << what << ", array " << i;
  }
}

class LayerGraph : public testing::Test {
 protected:
  void SetUp() override {
    const int device = cuda::first_place();
    if (device < 0) GTEST_SKIP() << "no CUDA device";
    place_ = cuda::make_place(device);
  }

  void replay(const Bucket& b, std::int64_t rounds) {
    SCOPED_TRACE(name_of(b));
    Step step(*place_, b);
    const Layer eager(*place_, b), captured(*place_, b);
    LayerStepArgs called = step.args(), replayed = step.args();
    eager.complete(called);
    captured.complete(replayed);
    // Two workspaces, as contents never matter.
    const std::size_t bytes = workspace_size(called);
    const PlacedBuffer first(*place_, bytes + 1), second(*place_, bytes + 1);
    called.index.workspace = {first.data(), bytes};
    replayed.index.workspace = {second.data(), bytes};
    place_->set(second.data(), 0xff, bytes + 1);
    step.change(0);
    const std::unique_ptr<Recording> graph = place_->record([&] { layer_step(replayed); });
    for (std::int64_t round = 1; round <= rounds; ++round) {
      step.change(static_cast<std::uint64_t>(round));
      layer_step(called);
      graph->run();
      expect_same(captured.outputs(), eager.outputs(), "round " + std::to_string(round));
      if (HasFatalFailure()) return;
    }
    expect_same(captured.caches(), eager.caches(), "caches");
    replays_ += rounds;
  }

  std::unique_ptr<Place> place_;
  std::int64_t replays_ = 0;
};

TEST_F(LayerGraph, of_uniform_decode_is_captured_once_a_bucket_and_replayed_a_thousand_times) {
  for (const auto& [kv, index] :
       {std::pair{DType::bf16, DType::bf16}, {DType::e4m3, DType::e4m3}}) {
    for (std::int64_t m = 1; m <= 8; ++m) {
      for (const std::int64_t batch : {1, 4, 32}) {
        replay({16, 1, kv, index, batch, m}, 20);
        if (HasFatalFailure()) return;
      }
    }
    replay({64, 4, kv, index, 8, 1}, 20);
    replay({64, 4, kv, index, 8, 4}, 20);
    replay({16, 1, kv, index, 512, 1, 0, 0, 300}, 8);
  }
  EXPECT_GE(replays_, 1000);
}

TEST_F(LayerGraph, of_prefill_and_of_mixed_batches_has_padded_requests) {
  for (const DType kv : {DType::bf16, DType::e4m3}) {
    replay({16, 1, kv, kv, 0, 1, 6, 700}, 12);
    replay({16, 1, kv, kv, 12, 1, 5, 500}, 12);
    replay({64, 4, kv, kv, 4, 3, 3, 300}, 8);
  }
}

}  // namespace
}  // namespace msa
