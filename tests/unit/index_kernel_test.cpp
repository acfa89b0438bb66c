// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/index_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "common/numeric.h"
#include "cpu/isa.h"
#include "cpu/parallel.h"
#include "cpu/tiles/kernels.h"

namespace msa::cpu {
namespace {

/// Queries and one page of keys in any types.
class IndexKernel : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { set_isa_for_testing(GetParam()); }

  static std::vector<std::byte> normal(DType type, std::int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> value;
    std::vector<std::byte> bytes(static_cast<std::size_t>(n) * size_of(type));
    for (std::int64_t i = 0; i < n; ++i) store(type, bytes.data(), i, value(random));
    return bytes;
  }

  static QueryTile tile_of(const std::vector<std::byte>& q, DType q_type, DType k_type,
                           std::int64_t tokens, std::int64_t heads, bool direct) {
    return {q.data(), q_type, k_type, heads * head_dim, head_dim, tokens, heads, direct};
  }

  static std::vector<float> score(const QueryTile& tile, const KeyBlock& block) {
    const ScoreKernels kernels = score_kernels();
    auto* scratch = static_cast<float*>(
        thread_scratch(static_cast<std::size_t>(score_scratch_bytes(tile.rows()))));
    std::vector<float> scores(static_cast<std::size_t>(tile.rows()));
    kernels.load_queries(tile, scratch);
    kernels.score_block(tile, block, scratch, scores.data());
    return scores;
  }

  static double exact(const std::vector<std::byte>& q, DType q_type, std::int64_t row,
                      const std::vector<std::byte>& k, DType k_type, std::int64_t keys) {
    double best = -INFINITY;
    for (std::int64_t j = 0; j < keys; ++j) {
      double dot = 0;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        dot +=
            load(q_type, q.data(), row * head_dim + d) * load(k_type, k.data(), j * head_dim + d);
      }
      best = std::max(best, dot);
    }
    return best;
  }
};

TEST_P(IndexKernel, ScoresAreTheLargestVisibleProduct) {
  for (DType k_type : {DType::bf16, DType::e4m3}) {
    for (DType q_type : {DType::bf16, DType::f16, DType::e4m3}) {
      const auto k = normal(k_type, std::int64_t{page_size} * head_dim, 1);
      for (std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13}) {
        const auto q = normal(q_type, rows * head_dim, 2);
        for (std::int64_t keys : {1, 2, 5, 127, 128}) {
          for (bool direct : {false, true}) {
            if (direct && rows > max_direct_rows) continue;
            const QueryTile tile = tile_of(q, q_type, k_type, 1, rows, direct);
            const auto scores = score(tile, {k.data(), head_dim, keys, keys});
            for (std::int64_t r = 0; r < rows; ++r) {
              EXPECT_NEAR(scores[r], exact(q, q_type, r, k, k_type, keys), 1e-4)
                  << rows << " rows, " << keys << " keys, direct " << direct;
            }
          }
        }
      }
    }
  }
}

TEST_P(IndexKernel, BitsDoNotDependOnTheTile) {
  constexpr std::int64_t rows = 48;
  for (DType k_type : {DType::bf16, DType::e4m3}) {
    const auto k = normal(k_type, std::int64_t{page_size} * head_dim, 3);
    const auto q = normal(DType::bf16, rows * head_dim, 4);
    for (std::int64_t visible : {128, 40}) {
      const QueryTile all = tile_of(q, DType::bf16, k_type, rows, 1, false);
      const auto want = score(all, {k.data(), head_dim, page_size, visible});
      for (std::int64_t t = 0; t < rows; ++t) {
        QueryTile one = tile_of(q, DType::bf16, k_type, 1, 1, false);
        one.data = q.data() + t * head_dim * 2;
        const auto got = score(one, {k.data(), head_dim, page_size, visible + t});
        EXPECT_EQ(std::memcmp(&got[0], &want[t], sizeof(float)), 0) << "row " << t;
      }
    }
  }
}

TEST_P(IndexKernel, EveryKeyPatternIsExact) {
  for (DType k_type : {DType::bf16, DType::e4m3}) {
    const int patterns = k_type == DType::bf16 ? 65536 : 256;
    std::vector<std::byte> q(head_dim * 2), k(std::size_t{page_size} * head_dim * size_of(k_type));
    store(DType::bf16, q.data(), 0, 1.0);  // score = element 0 of the only visible key
    for (int bits = 0; bits < patterns; ++bits) {
      std::memcpy(k.data(), &bits, size_of(k_type));
      const double want = load(k_type, k.data(), 0);
      for (bool direct : {false, true}) {
        const QueryTile tile = tile_of(q, DType::bf16, k_type, 1, 1, direct);
        const float got = score(tile, {k.data(), head_dim, 1, 1})[0];
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got)) << bits;
        } else {
          EXPECT_EQ(got, want) << bits;
        }
      }
    }
  }
}

TEST_P(IndexKernel, UnreadableKeysAreNotRead) {
  for (DType k_type : {DType::bf16, DType::e4m3}) {
    const std::size_t size = size_of(k_type);
    const auto q = normal(DType::bf16, 4 * head_dim, 5);
    for (std::int64_t keys : {1, 77}) {
      // Exactly the readable keys: a sanitizer sees any access past them.
      const auto full = normal(k_type, std::int64_t{page_size} * head_dim, 6);
      const std::vector<std::byte> k(
          full.begin(), full.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(keys) *
                                                                   head_dim * size));
      for (bool direct : {false, true}) {
        const QueryTile tile = tile_of(q, DType::bf16, k_type, 1, 4, direct);
        EXPECT_EQ(score(tile, {k.data(), head_dim, keys, page_size}),
                  score(tile, {full.data(), head_dim, page_size, keys}));
      }
    }
  }
}

TEST_P(IndexKernel, NothingVisibleIsMinusInfinity) {
  const auto q = normal(DType::bf16, 4 * head_dim, 7);
  const auto k = normal(DType::bf16, std::int64_t{page_size} * head_dim, 8);
  for (bool direct : {false, true}) {
    const QueryTile tile = tile_of(q, DType::bf16, DType::bf16, 2, 2, direct);
    const auto scores = score(tile, {k.data(), head_dim, page_size, 0});
    EXPECT_EQ(scores[0], -INFINITY);
    EXPECT_EQ(scores[1], -INFINITY);
    EXPECT_TRUE(std::isfinite(scores[2]));  // the second token sees one key
  }
}

TEST(IndexKernelSets, EachNamesCodeOfItsOwn) {
  using Score = void (*)(const QueryTile&, const KeyBlock&, float*, float*);
  std::set<std::pair<Score, const tiles::Kernels*>> kernels;
  const std::vector<Isa> isas = available_isas();
  for (const Isa isa : isas) {
    set_isa_for_testing(isa);
    kernels.emplace(score_kernels().score_block, tiles::kernels());
  }
  EXPECT_GE(kernels.size(), 1U);
  EXPECT_EQ(kernels.size(), isas.size());
  set_isa_for_testing(available_isas().back());
  EXPECT_TRUE(kernels.contains({score_kernels().score_block, tiles::kernels()}));
}

INSTANTIATE_TEST_SUITE_P(Sets, IndexKernel, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace msa::cpu
