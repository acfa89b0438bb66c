// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "msa/error.h"
#include "msa/layer.h"

namespace msa {
namespace {

using Layouts = std::vector<KVLayout>;
using User = std::optional<Layouts>;

Layouts negotiate(const std::vector<User>& users) { return negotiate_layouts(users); }

/// Coordinates of one element: layer, page, head, token, content.
using Coordinates = std::map<char, std::int64_t>;

/// Offset of an element as the layout's name spells it: a number whose digits are the coordinates.
std::int64_t offset_by_name(const std::string& order, const KVCacheShape& shape,
                            const Coordinates& at) {
  const Coordinates extent = {
      {'L', shape.layers}, {'B', shape.pages}, {'H', shape.heads}, {'N', 128}, {'C', 256}};
  std::int64_t offset = 0;
  for (char letter : order) offset = offset * extent.at(letter) + at.at(letter);
  return offset;
}

class NamedLayout : public ::testing::TestWithParam<KVLayout> {};
INSTANTIATE_TEST_SUITE_P(All, NamedLayout, ::testing::ValuesIn(all_kv_layouts),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(NamedLayout, StridesAreThoseThatTheNameSpells) {
  for (const KVCacheShape& shape :
       {KVCacheShape{1, 3, 1}, KVCacheShape{2, 5, 4}, KVCacheShape{60, 70000, 4}}) {
    const KVStrides s = kv_strides(GetParam(), shape);
    for (std::int64_t layer : {std::int64_t{0}, shape.layers - 1}) {
      for (std::int64_t page : {std::int64_t{0}, shape.pages / 2, shape.pages - 1}) {
        for (std::int64_t head : {std::int64_t{0}, shape.heads - 1}) {
          for (std::int64_t token : {0, 1, 127}) {
            EXPECT_EQ(
                layer * s.layer + page * s.page + head * s.head + token * s.token,
                offset_by_name(name(GetParam()), shape,
                               {{'L', layer}, {'B', page}, {'H', head}, {'N', token}, {'C', 0}}));
          }
        }
      }
    }
  }
}

TEST_P(NamedLayout, LayerViewsReachEveryElementOfTheCacheOnce) {
  const KVCacheShape shape{.layers = 3, .pages = 2, .heads = 2};
  std::vector<std::uint8_t> cache(static_cast<std::size_t>(shape.numel()), 0);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const Tensor view = kv_layer_view(cache.data(), DType::e4m3, GetParam(), shape, layer);
    ASSERT_EQ(view.rank, 4);
    EXPECT_EQ(view.numel() * shape.layers, shape.numel());
    auto* const base = view.ptr<std::uint8_t>();
    for (std::int64_t page = 0; page < view.shape[0]; ++page) {
      for (std::int64_t head = 0; head < view.shape[1]; ++head) {
        for (std::int64_t token = 0; token < view.shape[2]; ++token) {
          for (std::int64_t c = 0; c < view.shape[3]; ++c) {
            ++base[page * view.stride[0] + head * view.stride[1] + token * view.stride[2] + c];
          }
        }
      }
    }
  }
  EXPECT_EQ(cache, std::vector<std::uint8_t>(cache.size(), 1));
}

TEST_P(NamedLayout, LayerViewsStartAtTheirLayerInBytesOfTheType) {
  const KVCacheShape shape{.layers = 4, .pages = 2, .heads = 2};
  std::vector<std::uint16_t> cache(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const Tensor view = kv_layer_view(cache.data(), DType::bf16, GetParam(), shape, layer);
    EXPECT_EQ(
        view.data,
        cache.data() + offset_by_name(name(GetParam()), shape,
                                      {{'L', layer}, {'B', 0}, {'H', 0}, {'N', 0}, {'C', 0}}));
  }
}

TEST_P(NamedLayout, NameReadsBack) { EXPECT_EQ(parse_kv_layout(name(GetParam())), GetParam()); }

TEST(Layout, EnginesNamesAreUnderstood) {
  EXPECT_EQ(parse_kv_layout("HND"), KVLayout::LBHNC);
  EXPECT_EQ(parse_kv_layout("NHD"), KVLayout::LBNHC);
  EXPECT_EQ(parse_kv_layout("NDH"), std::nullopt);
}

TEST(Layout, HeadMajorAndTokenMajorAreTheSameBytesForOneHead) {
  const KVCacheShape one_head{.layers = 2, .pages = 7, .heads = 1};
  const KVStrides head_major = kv_strides(KVLayout::LBHNC, one_head);
  const KVStrides token_major = kv_strides(KVLayout::LBNHC, one_head);
  EXPECT_EQ(head_major.page, token_major.page);
  EXPECT_EQ(head_major.token, token_major.token);
  EXPECT_EQ(head_major.layer, token_major.layer);
}

TEST(NegotiateLayouts, KeepsTheFirstUsersOrder) {
  EXPECT_EQ(negotiate({User{{KVLayout::BLNHC, KVLayout::LBHNC, KVLayout::LBNHC}},
                       User{{KVLayout::LBNHC, KVLayout::LBHNC, KVLayout::BLNHC}}}),
            (Layouts{KVLayout::BLNHC, KVLayout::LBHNC, KVLayout::LBNHC}));
}

TEST(NegotiateLayouts, DropsWhatOneUserCannotServe) {
  EXPECT_EQ(negotiate({User{{KVLayout::LBHNC, KVLayout::LBNHC}}, User{{KVLayout::LBNHC}},
                       User{{KVLayout::LHBNC, KVLayout::LBNHC}}}),
            (Layouts{KVLayout::LBNHC}));
}

TEST(NegotiateLayouts, UserWithoutAListAcceptsAny) {
  EXPECT_EQ(negotiate({User{}, User{{KVLayout::LBNHC, KVLayout::BHLNC}}, User{}}),
            (Layouts{KVLayout::LBNHC, KVLayout::BHLNC}));
  const Layouts all(all_kv_layouts.begin(), all_kv_layouts.end());
  EXPECT_EQ(negotiate({User{}, User{}}), all);
  EXPECT_EQ(negotiate({}), all);
}

TEST(NegotiateLayouts, NothingInCommonIsAnEmptyResult) {
  EXPECT_TRUE(negotiate({User{{KVLayout::LBHNC}}, User{{KVLayout::LBNHC}}}).empty());
  EXPECT_TRUE(negotiate({User{Layouts{}}, User{}}).empty());
}

TEST(NegotiateLayouts, LayoutNamedTwiceAppearsOnce) {
  EXPECT_EQ(negotiate({User{{KVLayout::LBHNC, KVLayout::LBHNC}}}), (Layouts{KVLayout::LBHNC}));
}

TEST(SparseBackend, PrefersHeadMajorAndAcceptsEveryNamedLayout) {
  for (int arch : {0, 80, 90, 120, 121}) {
    const Layouts layouts = SparseBackend::supported_kv_cache_layouts(arch);
    EXPECT_EQ(layouts.front(), KVLayout::LBHNC);
    for (KVLayout layout : all_kv_layouts) {
      EXPECT_EQ(std::count(layouts.begin(), layouts.end(), layout), 1) << name(layout);
    }
  }
}

TEST(SparseBackend, WorksBesideAUserOfTokenMajorCaches) {
  EXPECT_EQ(
      negotiate({User{SparseBackend::supported_kv_cache_layouts(90)}, User{{KVLayout::LBNHC}}}),
      (Layouts{KVLayout::LBNHC}));
}

TEST(SparseBackend, AcceptsTheCacheTypesOfEnginesByName_Report65) {
  for (const char* dtype :
       {"auto", "bfloat16", "bf16", "float16", "half", "fp8", "fp8_e4m3", "fp8_e5m2"}) {
    EXPECT_TRUE(SparseBackend::supports_kv_cache_dtype(dtype)) << dtype;
  }
  for (const char* dtype : {"float32", "int8", "fp8_inc", "nvfp4", ""}) {
    EXPECT_FALSE(SparseBackend::supports_kv_cache_dtype(dtype)) << dtype;
  }
}

TEST(SparseBackend, RefusesOtherBlockSizesNamingBothNumbers_Report15) {
  EXPECT_EQ(SparseBackend::supported_block_sizes(), std::vector<int>{128});
  EXPECT_NO_THROW(SparseBackend::check_block_size(128));
  for (std::int64_t size : {0, 1, 16, 64, 256}) {
    try {
      SparseBackend::check_block_size(size);
      FAIL() << "accepted " << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(std::to_string(size)), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("128"), std::string::npos);
    }
  }
}

TEST(SparseBackend, CacheShapeIsPagesHeadsTokensContent) {
  EXPECT_EQ(SparseBackend::kv_cache_shape(512, 4), (std::array<std::int64_t, 4>{512, 4, 128, 256}));
  EXPECT_EQ(SparseBackend::kv_cache_shape(0, 1)[0], 0);
  try {
    SparseBackend::kv_cache_shape(-1, 0);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(
        error.failures(),
        (std::vector<std::string>{"SparseBackend: argument 'pages' is -1; allowed: 0 or more",
                                  "SparseBackend: argument 'kv_heads' is 0; allowed: 1 or more"}));
  }
  EXPECT_STREQ(SparseBackend::name(), "MSA_SPARSE");
}

}  // namespace
}  // namespace msa
