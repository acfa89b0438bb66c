// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <type_traits>

#include "cuda/portable/index/config.h"

/// \file
/// Sizes of the portable indexer's score kernel, which need no device. What it shares with SM90 is
/// tested there.

namespace msa::cuda::portable::index {
namespace {

TEST(PortableIndexPlan, EveryColumnCountHasAKernel) {
  for (int columns = 1; columns <= max_columns; ++columns) {
    const int compiled = compiled_columns(columns);
    ASSERT_GE(compiled, columns);
    ASSERT_TRUE(compiled == 16 || compiled / 2 < columns) << columns;
    ASSERT_TRUE(compiled == 16 || compiled == 32 || compiled == 64 || compiled == 128 ||
                compiled == 256);
  }
}

/// body(keys, columns) for every kernel.
template <class Body>
void for_kernels(Body body) {
  const auto columns = [&]<class Keys>(Keys keys) {
    body(keys, std::integral_constant<int, 16>());
    body(keys, std::integral_constant<int, 32>());
    body(keys, std::integral_constant<int, 64>());
    body(keys, std::integral_constant<int, 128>());
    body(keys, std::integral_constant<int, 256>());
  };
  columns(Bf16Keys());
  columns(SplitKeys());
  columns(WidenedKeys());
  columns(E4m3Keys());
}

TEST(PortableIndexPlan, WarpsCoverEveryColumnAndKeyOnce) {
  for_kernels([]<class Keys, int n>(Keys, std::integral_constant<int, n>) {
    using Sizes = Team<Keys, n>;
    EXPECT_EQ(Sizes::column_warps * Sizes::columns, n);
    EXPECT_EQ(Sizes::key_warps * Sizes::warp_keys, Sizes::slot_keys);
    EXPECT_EQ(Sizes::slots_a_page * Sizes::slot_keys, page_size);
    EXPECT_EQ(Sizes::warps * warp_slot_bytes, Sizes::slot_keys * Keys::key_bytes);
    // A warp's own part of a slot is what it reads where it waits for nobody.
    EXPECT_TRUE(!Sizes::own_keys || Sizes::warp_keys * Keys::key_bytes == warp_slot_bytes);
    // 16 columns of queries pass through that part.
    EXPECT_LE(16 * Keys::query_bytes, warp_slot_bytes);
  });
}

TEST(PortableIndexPlan, QueriesOfAWarpFitItsRegisters) {
  for_kernels([]<class Keys, int n>(Keys, std::integral_constant<int, n>) {
    constexpr int bytes = Team<Keys, n>::columns * Keys::planes * Keys::query_bytes;
    EXPECT_LE(bytes / (32 * 4), 128);
  });
}

TEST(PortableIndexPlan, EveryKernelFitsTheSmallestSharedMemory) {
  for_kernels([]<class Keys, int n>(Keys, std::integral_constant<int, n>) {
    static_assert(shared_bytes<Keys, n>(n == 16) <= most_shared_bytes);
  });
}

}  // namespace
}  // namespace msa::cuda::portable::index
