// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "common/numeric.h"
#include "msa/msa.h"

namespace msa {
namespace {

constexpr std::int64_t heads = 8, kv_heads = 2, index_heads = 2, topk = 4, pages = 40;
constexpr std::int64_t decodes = 3, m = 2, prefill = 70;
constexpr std::int64_t tokens = decodes * m + prefill;

/// Inputs that every caller shares: read-only while calls run.
struct Inputs {
  std::vector<std::uint16_t> q, index_q, cache, index_cache;
  std::vector<std::int32_t> seq_lens{300, 1000, 129, 400}, table, cu{0, prefill},
      context{400 - prefill};
  BatchMetadata batch;

  Inputs() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<std::uint16_t>& v, std::int64_t n) {
      v.resize(static_cast<std::size_t>(n));
      for (auto& x : v) x = float_to_bf16(normal(random));
    };
    fill(q, tokens * heads * 128);
    fill(index_q, tokens * index_heads * 128);
    fill(cache, pages * kv_heads * 128 * 256);
    fill(index_cache, pages * 128 * 128);
    for (std::int32_t r = 0; r < 4; ++r) {
      for (std::int32_t c = 0; c < 8; ++c) table.push_back((r * 8 + c * 5) % pages);
    }
    batch.seq_lens = ConstTensor::dense(seq_lens.data(), DType::i32, {4});
    batch.block_table = ConstTensor::dense(table.data(), DType::i32, {4, 8});
    batch.cu_seqlens_q = ConstTensor::dense(cu.data(), DType::i32, {2});
    batch.context_lens = ConstTensor::dense(context.data(), DType::i32, {1});
    batch.num_decodes = decodes;
    batch.num_prefills = 1;
    batch.decode_query_len = m;
    batch.num_actual_tokens = tokens;
    batch.max_query_len = prefill;
    batch.max_seq_len = 1000;
  }
};

/// One caller's outputs and workspace.
struct Outputs {
  std::vector<std::int32_t> selection = std::vector<std::int32_t>(tokens * kv_heads * topk);
  std::vector<std::uint16_t> out = std::vector<std::uint16_t>(tokens * heads * 128);
  std::vector<float> lse = std::vector<float>(tokens * heads);
  std::vector<char> workspace;

  void step(const Inputs& in) {
    IndexArgs index;
    index.index_q = ConstTensor::dense(in.index_q.data(), DType::bf16, {tokens, index_heads, 128});
    index.index_cache = ConstTensor::dense(in.index_cache.data(), DType::bf16, {pages, 128, 128});
    index.batch = in.batch;
    index.selection = Tensor::dense(selection.data(), DType::i32, {tokens, kv_heads, topk});
    provide(index);
    index_blocks(index);

    AttendArgs a;
    a.q = ConstTensor::dense(in.q.data(), DType::bf16, {tokens, heads, 128});
    a.kv_cache = ConstTensor::dense(in.cache.data(), DType::bf16, {pages, kv_heads, 128, 256});
    a.selection = index.selection;
    a.batch = in.batch;
    a.out = Tensor::dense(out.data(), DType::bf16, {tokens, heads, 128});
    a.lse = Tensor::dense(lse.data(), DType::f32, {tokens, heads});
    provide(a);
    attend(a);
  }

  bool operator==(const Outputs& other) const {
    return selection == other.selection && out == other.out &&
           std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
  }

 private:
  template <class Args>
  void provide(Args& args) {
    workspace.resize(std::max(workspace.size(), workspace_size(args)));
    args.workspace = {workspace.data(), workspace.size()};
  }
};

TEST(ConcurrentCalls, ThreadsWithTheirOwnWorkspacesGetTheBitsOfACallAlone) {
  const Inputs inputs;
  Outputs alone;
  alone.step(inputs);
  constexpr int callers = 4;
  std::vector<Outputs> outputs(callers);
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        std::fill(outputs[i].out.begin(), outputs[i].out.end(), std::uint16_t{0x7fc0});
        outputs[i].step(inputs);
        EXPECT_TRUE(outputs[i] == alone) << "caller " << i << ", round " << round;
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(ConcurrentCalls, ErrorsStayWithTheirCaller) {
  const Inputs inputs;
  Outputs alone;
  alone.step(inputs);
  std::thread wrong([&] {
    for (int round = 0; round < 50; ++round) {
      AttendArgs empty;
      EXPECT_THROW(attend(empty), Error);
    }
  });
  for (int round = 0; round < 5; ++round) {
    Outputs mine;
    mine.step(inputs);
    EXPECT_TRUE(mine == alone);
    EXPECT_STREQ(last_backend(), "cpu");
  }
  wrong.join();
}

}  // namespace
}  // namespace msa
