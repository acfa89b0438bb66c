// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <set>

#include "msa/msa.h"

namespace msa {
namespace {

TEST(Tensor, DenseStridesCountElements) {
  const auto t = ConstTensor::dense(nullptr, DType::bf16, {5, 3, 128});
  EXPECT_EQ(t.stride[0], 384);
  EXPECT_EQ(t.stride[1], 128);
  EXPECT_EQ(t.stride[2], 1);
  EXPECT_EQ(t.numel(), 5 * 3 * 128);
}

TEST(Tensor, NarrowAndTransposeMoveTheView) {
  std::int32_t values[24];
  for (int i = 0; i < 24; ++i) values[i] = i;
  const auto t = Tensor::dense(values, DType::i32, {2, 3, 4});
  const auto n = t.narrow(2, 1, 2).narrow(1, 2, 1);
  EXPECT_EQ(*n.ptr<std::int32_t>(), 9);
  const auto x = t.transpose(0, 2);
  EXPECT_EQ(x.shape[0], 4);
  EXPECT_EQ(x.ptr<std::int32_t>()[3 * x.stride[0] + 2 * x.stride[1] + 1 * x.stride[2]], 23);
}

TEST(Tensor, ExtentsPastAllNumbersAreCountedAsFarAsNumbersGo) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  std::uint8_t byte = 0;
  const auto t = Tensor::dense(&byte, DType::u8, {huge, huge, 2, 3});
  EXPECT_EQ(t.numel(), most);
  EXPECT_EQ(t.stride[0], most);
  EXPECT_EQ(t.stride[1], 6);
  EXPECT_EQ(Tensor::dense(&byte, DType::u8, {huge, huge, 0}).numel(), 0);
  EXPECT_EQ(Tensor::dense(&byte, DType::u8, {-1, -1}).numel(), 0);
  // Where nothing is left, there is no element to point at.
  EXPECT_EQ(t.narrow(1, 7, 0).data, &byte);
  EXPECT_EQ(t.narrow(1, 7, 0).narrow(0, 7, 1).data, &byte);
}

TEST(Tensor, BytesTakeATypeOfTheirSizeOnly) {
  std::uint8_t bytes[4] = {};
  const auto t = Tensor::dense(bytes, DType::u8, {4});
  EXPECT_EQ(t.as(DType::e4m3).dtype, DType::e4m3);
  EXPECT_EQ(t.as(DType::bf16).dtype, DType::u8);
}

TEST(Types, NamesAreReadBack) {
  for (DType t : {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i32,
                  DType::i64, DType::u8}) {
    EXPECT_EQ(parse_dtype(name(t)), t);
  }
  EXPECT_EQ(parse_dtype("auto"), DType::bf16);
  EXPECT_EQ(parse_dtype("FP8_E4M3"), DType::e4m3);
  EXPECT_EQ(parse_dtype("fp8_e5m2"), DType::e5m2);
  EXPECT_EQ(parse_dtype("int4"), std::nullopt);
  for (KVLayout l : all_kv_layouts) EXPECT_EQ(parse_kv_layout(name(l)), l);
  EXPECT_EQ(parse_kv_layout("HND"), KVLayout::LBHNC);
  EXPECT_EQ(parse_kv_layout("nhd"), KVLayout::LBNHC);
}

TEST(KVCache, EveryLayoutPlacesEveryElementOnce) {
  const KVCacheShape shape{.layers = 2, .pages = 3, .heads = 2};
  for (KVLayout layout : all_kv_layouts) {
    SCOPED_TRACE(name(layout));
    const KVStrides s = kv_strides(layout, shape);
    std::set<std::int64_t> rows;
    for (std::int64_t l = 0; l < shape.layers; ++l) {
      for (std::int64_t p = 0; p < shape.pages; ++p) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
          for (std::int64_t n = 0; n < page_size; ++n) {
            const std::int64_t row = l * s.layer + p * s.page + h * s.head + n * s.token;
            EXPECT_EQ(row % (2 * head_dim), 0);
            EXPECT_LE(row + 2 * head_dim, shape.numel());
            rows.insert(row);
          }
        }
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(rows.size()) * 2 * head_dim, shape.numel());
  }
}

TEST(KVCache, OneHeadMakesHndAndNhdTheSameBytes) {
  const KVCacheShape shape{.layers = 4, .pages = 7, .heads = 1};
  const KVStrides hnd = kv_strides(KVLayout::LBHNC, shape);
  const KVStrides nhd = kv_strides(KVLayout::LBNHC, shape);
  EXPECT_EQ(hnd.page, nhd.page);
  EXPECT_EQ(hnd.token, nhd.token);
}

TEST(KVCache, OffsetsAre64Bit) {
  const KVCacheShape shape{.layers = 60, .pages = 100000, .heads = 4};
  const KVStrides s = kv_strides(KVLayout::BLHNC, shape);
  EXPECT_EQ(s.page, std::int64_t{60} * 4 * 32768);
  EXPECT_GT((shape.pages - 1) * s.page, std::int64_t{1} << 31);
  EXPECT_EQ(shape.numel(), std::int64_t{60} * 100000 * 4 * 32768);
}

}  // namespace
}  // namespace msa
