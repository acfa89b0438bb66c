// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/numeric.h"
#include "msa/error.h"
#include "reference/reference.h"
#include "step.h"
#include "verify/compare.h"

namespace msa::serving_test {
namespace {

/// Decode and prefill, short and long contexts, in one step.
StepSpec mixed() {
  StepSpec spec;
  spec.query_lens = {1, 1, 1, 70, 0, 7};
  spec.seq_lens = {1, 129, 700, 70, 0, 263};
  return spec;
}

Tensor forward(const Step& step, const ForwardContext& context) {
  return step.impl().forward(step.layer(), step.query(), step.cache(), step.output(), context);
}

void forward(const Step& step) { forward(step, step.context()); }

/// The contract's bounds for unit-variance inputs, relative to the size of v's scale.
void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                  double v_scale = 1) {
  ASSERT_EQ(got.size(), want.size());
  const verify::Distance d = verify::distance(got, want);
  EXPECT_TRUE(d.same_non_finite);
  EXPECT_LE(d.max_abs, 1.7e-2 * std::max(1.0, v_scale));
  EXPECT_LE(d.relative_l2, 4e-3);
}

std::vector<std::string> failures_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.failures();
  }
  return {};
}

bool mentions(const std::vector<std::string>& failures, std::initializer_list<const char*> texts) {
  return std::any_of(failures.begin(), failures.end(), [&](const std::string& failure) {
    return std::all_of(texts.begin(), texts.end(),
                       [&](const char* text) { return failure.find(text) != std::string::npos; });
  });
}

// ---------------------------------------------------------------------------------------------------
// SparseImpl::forward against the reference.

struct Cell {
  const char* name;
  DType q_type;
  DType kv_type;
  KVLayout layout;
};

const Cell cells[] = {
    {"bf16_LBHNC", DType::bf16, DType::bf16, KVLayout::LBHNC},
    {"bf16_LBNHC", DType::bf16, DType::bf16, KVLayout::LBNHC},
    {"bf16_BHLNC", DType::bf16, DType::bf16, KVLayout::BHLNC},
    {"f16_LHBNC", DType::f16, DType::f16, KVLayout::LHBNC},
    {"f16q_bf16_BLHNC", DType::f16, DType::bf16, KVLayout::BLHNC},
    {"bf16q_e4m3_LBHNC", DType::bf16, DType::e4m3, KVLayout::LBHNC},
    {"bf16q_e5m2_BLNHC", DType::bf16, DType::e5m2, KVLayout::BLNHC},
    {"f16q_e4m3_LBNHC", DType::f16, DType::e4m3, KVLayout::LBNHC},
};

class Forward : public ::testing::TestWithParam<Cell> {
 protected:
  StepSpec spec_of(const StepSpec& base) const {
    StepSpec spec = base;
    spec.q_type = GetParam().q_type;
    spec.kv_type = GetParam().kv_type;
    spec.layout = GetParam().layout;
    if (is_fp8(spec.kv_type)) {
      spec.k_scale = 0.25f;
      spec.v_scale = 0.5f;
    }
    return spec;
  }
};
INSTANTIATE_TEST_SUITE_P(Cells, Forward, ::testing::ValuesIn(cells),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Forward, MixedStepMatchesTheReference) {
  const Step step(spec_of(mixed()));
  ASSERT_EQ(step.metadata.at(layer_name).num_decodes, 3);
  ASSERT_EQ(step.metadata.at(layer_name).num_prefills, 3);
  forward(step);
  expect_close(step.result(), step.expected());
}

TEST_P(Forward, DraftWindowsAcrossABlockEdgeMatchTheReference_Report80) {
  for (std::int32_t m = 2; m <= 8; m += 3) {
    StepSpec spec = spec_of({});
    spec.query_lens = {m, m, m};
    spec.seq_lens = {129, 256 + m - 1, 640};  // windows over positions 127|128 and 255|256
    spec.threshold = 8;
    const Step step(spec);
    ASSERT_EQ(step.metadata.at(layer_name).batch.decode_query_len, m);
    forward(step);
    expect_close(step.result(), step.expected());
  }
}

TEST_P(Forward, ChunkAfterACachedPrefixMatchesTheReference_Report56) {
  StepSpec spec = spec_of({});
  spec.query_lens = {7, 7};
  spec.seq_lens = {1007, 1031};  // prefixes of 1000 (inside a block) and 1024 tokens
  const Step step(spec);
  forward(step);
  expect_close(step.result(), step.expected());
}

TEST_P(Forward, PoisonOfAnyKindGivesTheSameBitsAndOnlyRowsBelowTAreWritten) {
  StepSpec spec = spec_of(mixed());
  spec.padding = 2;
  std::vector<std::byte> bits[2];
  for (Poison poison : {Poison::nan, Poison::huge}) {
    spec.poison = poison;
    const Step step(spec);
    const auto out_before = verify::snapshot(step.out);
    const auto topk_before = verify::snapshot(step.topk);
    const auto kv_before = verify::snapshot(step.kv);
    const auto q_before = verify::snapshot(step.q);
    forward(step);
    EXPECT_TRUE(verify::untouched_outside(step.out, out_before, spec.tokens()));
    EXPECT_EQ(verify::snapshot(step.topk), topk_before);
    EXPECT_EQ(verify::snapshot(step.kv), kv_before);
    EXPECT_EQ(verify::snapshot(step.q), q_before);
    bits[poison == Poison::huge] = step.result_bits();
  }
  EXPECT_EQ(bits[0], bits[1]);
}

TEST_P(Forward, PlaceOfThePagesDoesNotChangeABit) {
  StepSpec spec = spec_of(mixed());
  const Step a(spec);
  spec.page_seed = 2;
  spec.spare_pages = 20;
  const Step b(spec);
  forward(a);
  forward(b);
  EXPECT_EQ(a.result_bits(), b.result_bits());
}

// ---------------------------------------------------------------------------------------------------
// Scales and types.

TEST(ForwardScales, UnscaledFp8ResultIsFarOff_Report60) {
  StepSpec spec = mixed();
  spec.kv_type = DType::e4m3;
  spec.k_scale = 0.25f;
  spec.v_scale = 0.5f;
  const Step step(spec);
  forward(step);
  EXPECT_GT(verify::distance(step.result(), step.expected(false)).relative_l2, 0.2);
}

TEST(ForwardScales, ScalesOnTheDeviceEqualHostScales) {
  StepSpec spec = mixed();
  spec.kv_type = DType::e4m3;
  spec.k_scale = 0.25f;
  spec.v_scale = 0.5f;
  const Step on_host(spec);
  forward(on_host);
  float scales[] = {0.25f, 0.5f};
  spec.k_scale = Scale(ConstTensor::dense(&scales[0], DType::f32, {1}));
  spec.v_scale = Scale(ConstTensor::dense(&scales[1], DType::f32, {1}));
  const Step on_device(spec);
  forward(on_device);
  EXPECT_EQ(on_host.result_bits(), on_device.result_bits());
}

TEST(ForwardScales, CachesOfSixteenBitsIgnoreTheScales) {
  const Step plain(mixed());
  StepSpec spec = mixed();
  spec.k_scale = 7.0f;
  spec.v_scale = 3.0f;
  const Step scaled(spec);
  forward(plain);
  forward(scaled);
  EXPECT_EQ(plain.result_bits(), scaled.result_bits());
}

TEST(ForwardTypes, BytesAreReadAsTheConfiguredFp8Type_Report65) {
  for (DType type : {DType::e4m3, DType::e5m2}) {
    StepSpec spec = mixed();
    spec.kv_type = type;
    const Step typed(spec);
    const Step bytes(spec);
    forward(typed);
    bytes.impl().forward(bytes.layer(), bytes.query(), bytes.cache().as(DType::u8), bytes.output(),
                         bytes.context());
    EXPECT_EQ(typed.result_bits(), bytes.result_bits());
  }
}

TEST(ForwardTypes, RowsMayComeSplitIntoHeads) {
  const Step flat(mixed());
  const Step split(mixed());
  forward(flat);
  split.impl().forward(split.layer(), split.q.view(), split.cache(), split.out.view(),
                       split.context());
  EXPECT_EQ(flat.result_bits(), split.result_bits());
}

TEST(ForwardTypes, SelectionMayBeSharedByAllHeads) {
  StepSpec spec = mixed();
  const Step step(spec);
  LayerContext layer = step.layer();
  layer.topk_indices = layer.topk_indices.narrow(1, 0, 1);
  step.impl().forward(layer, step.query(), step.cache(), step.output(), step.context());
  for (std::int64_t t = 0; t < spec.tokens(); ++t) {
    for (std::int64_t k = 0; k < spec.topk; ++k) {
      verify::i32(step.topk, t, 1, k) = verify::i32(step.topk, t, 0, k);
    }
  }
  expect_close(step.result(), step.expected());
}

TEST(ForwardTypes, HeadMajorAndTokenMajorCachesGiveTheSameBits_Report72) {
  StepSpec spec = mixed();
  spec.layout = KVLayout::LBHNC;
  const Step head_major(spec);
  spec.layout = KVLayout::LBNHC;
  const Step token_major(spec);
  forward(head_major);
  forward(token_major);
  EXPECT_EQ(head_major.result_bits(), token_major.result_bits());
}

TEST(ForwardTypes, NoLayoutOrPoolAsksForACopyOfTheCache_Report72) {
  std::vector<std::size_t> sizes;
  for (KVLayout layout : all_kv_layouts) {
    for (std::int64_t spare_pages : {0, 500}) {
      StepSpec spec = mixed();
      spec.layout = layout;
      spec.spare_pages = spare_pages;
      const Step step(spec);
      sizes.push_back(step.impl().workspace_size(step.layer(), step.query(), step.cache(),
                                                 step.output(), step.context()));
    }
  }
  EXPECT_EQ(std::count(sizes.begin(), sizes.end(), sizes[0]),
            static_cast<std::ptrdiff_t>(sizes.size()));
}

TEST(ForwardTypes, WorkspaceOfTheStatedSizeIsEnoughAndItsContentsDoNotMatter) {
  const Step a(mixed());
  const Step b(mixed());
  const std::size_t bytes =
      a.impl().workspace_size(a.layer(), a.query(), a.cache(), a.output(), a.context());
  forward(a, a.context(bytes));
  const ForwardContext large = b.context(2 * bytes + 4096);
  std::fill_n(static_cast<std::byte*>(large.workspace.data), large.workspace.bytes,
              std::byte{0x11});
  forward(b, large);
  EXPECT_EQ(a.result_bits(), b.result_bits());
}

TEST(ForwardTypes, InvariantModeIsPassedOn) {
  // The same request alone and behind others: equal bits in invariant mode.
  StepSpec alone;
  alone.query_lens = {20};
  alone.seq_lens = {300};
  StepSpec together = alone;
  together.query_lens = {20, 33};
  together.seq_lens = {300, 500};
  std::vector<std::byte> bits[2];
  for (int i = 0; i < 2; ++i) {
    const Step step(i == 0 ? alone : together);
    SparseImpl::Config config = step.impl().config();
    config.invariant = true;
    SparseImpl(config).forward(step.layer(), step.query(), step.cache(), step.output(),
                               step.context());
    bits[i] = step.result_bits();
  }
  bits[1].resize(bits[0].size());
  EXPECT_EQ(bits[0], bits[1]);
}

// ---------------------------------------------------------------------------------------------------
// Profiling runs, padding, nothing to do.

TEST(ForwardPadding, ProfilingRunLeavesTheOutputUntouched) {
  const Step step(mixed());
  const auto before = verify::snapshot(step.out);
  LayerContext unbound;
  unbound.name = "not bound yet";
  const Tensor result = step.impl().forward(unbound, ConstTensor(), Tensor(), step.output(), {});
  EXPECT_EQ(result.data, step.output().data);
  EXPECT_EQ(verify::snapshot(step.out), before);
  EXPECT_EQ(step.impl().workspace_size(LayerContext{}, ConstTensor(), Tensor(), step.output(),
                                       ForwardContext{}),
            0u);
}

TEST(ForwardPadding, ForwardReturnsTheOutputItWrote) {
  const Step step(mixed());
  const Tensor result = forward(step, step.context());
  EXPECT_EQ(result.data, step.output().data);
  EXPECT_EQ(result.shape, step.output().shape);
}

TEST(ForwardPadding, TokensOfNoRequestBecomeEmptyRows) {
  StepSpec spec = mixed();
  spec.padding = 5;
  const Step step(spec);
  forward(step);
  expect_close(step.result(), step.expected());
  const auto got = step.result();
  EXPECT_TRUE(std::all_of(got.end() - 5 * spec.q_heads * head_dim, got.end(),
                          [](double x) { return x == 0; }));
}

TEST(ForwardPadding, ReplayWithFewerRealRequestsGivesTheirBits_Report42) {
  StepSpec real;
  real.query_lens = {1, 1, 1, 1, 1};
  real.seq_lens = {130, 257, 1, 700, 128};
  const Step eager(real);
  forward(eager);
  for (std::int32_t stale_length : {0, 1, 400}) {
    StepSpec padded = real;
    padded.query_lens.insert(padded.query_lens.end(), 3, 0);
    padded.seq_lens.insert(padded.seq_lens.end(), 3, stale_length);
    padded.padding = 3;
    const Step replay(padded);
    ASSERT_EQ(replay.metadata.at(layer_name).num_decodes, 8);
    forward(replay);
    auto bits = replay.result_bits();
    bits.resize(eager.result_bits().size());
    EXPECT_EQ(bits, eager.result_bits());
  }
}

TEST(ForwardPadding, PaddingRowsWithoutAPageAreEmpty_Report44) {
  StepSpec spec;
  spec.query_lens = {1, 1, 0, 0};
  spec.seq_lens = {130, 257, 1, 1};
  spec.padding = 2;
  for (std::int32_t entry : {-1, 1 << 30}) {
    const Step step(spec);
    for (std::int64_t r : {2, 3}) {
      for (std::int64_t w = 0; w < step.table_array.view().shape[1]; ++w) {
        verify::i32(step.table_array, r, w) = entry;
      }
    }
    for (std::int64_t t : {2, 3}) {
      for (std::int64_t h = 0; h < spec.kv_heads; ++h) verify::i32(step.topk, t, h, 0) = 0;
    }
    forward(step);
    const auto got = step.result();
    EXPECT_TRUE(std::all_of(got.begin() + 2 * spec.q_heads * head_dim, got.end(),
                            [](double x) { return x == 0; }));
  }
}

TEST(ForwardPadding, SmallStepAfterALargeOneOnTheSameBuffers_Report46) {
  StepSpec large;
  large.query_lens.assign(8, 1);
  large.seq_lens.assign(8, 300);
  Step reused(large);
  forward(reused);
  // Three requests remain; tables, lengths, selections and queries of the others are stale.
  reused.spec.seq_lens.resize(3);
  reused.query_start_loc.resize(4);
  StepInputs inputs = reused.inputs();
  inputs.num_actual_tokens = 3;
  inputs.seq_lens = inputs.seq_lens.narrow(0, 0, 3);
  inputs.block_table = inputs.block_table.narrow(0, 0, 3);
  reused.metadata[layer_name] = MetadataBuilder().build(inputs);
  verify::fill_poison(DType::bf16, reused.out.buffer().data(),
                      static_cast<std::int64_t>(reused.out.buffer().bytes()) / 2, Poison::huge);
  const auto before = verify::snapshot(reused.out);
  forward(reused);
  EXPECT_TRUE(verify::untouched_outside(reused.out, before, 3));

  StepSpec small = large;
  small.query_lens.resize(3);
  small.seq_lens.resize(3);
  const Step fresh(small);
  forward(fresh);
  const auto bits = reused.result_bits();
  const auto wanted = fresh.result_bits();
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), bits.begin()));
}

TEST(ForwardPadding, NothingToDoIsAValidStep_Report47) {
  const StepSpec empties[] = {
      {},  // no requests, T = 0
      {.query_lens = {}, .seq_lens = {}, .padding = 4},
      {.query_lens = {0, 0}, .seq_lens = {0, 0}},
      {.query_lens = {1, 1}, .seq_lens = {0, 0}},  // all keys gone
      {.query_lens = {0, 0}, .seq_lens = {0, 0}, .padding = 2},
      {.query_lens = {5, 0}, .seq_lens = {0, 0}},
  };
  for (StepSpec spec : empties) {
    spec.spare_pages = -1;  // not one page in the pool
    const Step step(spec);
    ASSERT_EQ(step.pages, 0);
    const auto before = verify::snapshot(step.out);
    forward(step);
    EXPECT_TRUE(verify::untouched_outside(step.out, before, spec.tokens()));
    const auto got = step.result();
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](double x) { return x == 0; }));
  }
}

TEST(ForwardPadding, RequestsMaySharePhysicalPages_Report81) {
  StepSpec spec;
  spec.query_lens = {1, 1, 9};
  spec.seq_lens = {640, 640, 640};
  const Step step(spec);
  for (std::int64_t b = 0; b < 4; ++b) {  // a prefix of four pages
    for (std::int64_t r : {1, 2}) {
      verify::i32(step.table_array, r, b) = verify::i32(step.table_array, 0, b);
    }
  }
  forward(step);
  expect_close(step.result(), step.expected());
}

// ---------------------------------------------------------------------------------------------------
// Any step.

rc::Gen<StepSpec> any_step() {
  return rc::gen::exec([] {
    StepSpec spec;
    spec.q_heads = 4;
    spec.kv_heads = 1;
    spec.index_heads = 1;
    spec.threshold = *rc::gen::inRange(0, 5);
    spec.padding = *rc::gen::inRange(0, 7);
    spec.page_seed = static_cast<std::uint64_t>(*rc::gen::inRange(0, 1000));
    const std::int32_t usual = *rc::gen::inRange(1, 5);
    const int requests = *rc::gen::inRange(0, 6);
    for (int r = 0; r < requests; ++r) {
      spec.query_lens.push_back(*rc::gen::weightedOneOf<std::int32_t>(
          {{4, rc::gen::just(usual)}, {2, rc::gen::just(0)}, {1, rc::gen::inRange(0, 40)}}));
      // Fewer keys than tokens (negative positions) included.
      spec.seq_lens.push_back(*rc::gen::weightedOneOf<std::int32_t>(
          {{4, rc::gen::inRange(0, 400)}, {1, rc::gen::just(0)}, {1, rc::gen::just(128)}}));
    }
    return spec;
  });
}

}  // namespace

void showValue(const StepSpec& spec, std::ostream& out) {
  out << "threshold " << spec.threshold << ", padding " << spec.padding << ", query/seq";
  for (std::size_t r = 0; r < spec.seq_lens.size(); ++r) {
    out << ' ' << spec.query_lens[r] << '/' << spec.seq_lens[r];
  }
}

namespace {

RC_GTEST_PROP(ForwardProperty, RowsOfAnyStepMatchTheReference, ()) {
  const StepSpec spec = *any_step();
  const Step step(spec);
  const auto before = verify::snapshot(step.out);
  forward(step);
  RC_ASSERT(verify::untouched_outside(step.out, before, spec.tokens()));
  // Padding rows that are counted as those of an empty request may see its stale keys.
  const auto real =
      static_cast<std::ptrdiff_t>(step.query_start_loc.back() * spec.q_heads * head_dim);
  const auto got = step.result();
  const auto want = step.expected();
  const verify::Distance d =
      verify::distance({got.begin(), got.begin() + real}, {want.begin(), want.begin() + real});
  RC_ASSERT(d.same_non_finite);
  RC_ASSERT(d.max_abs <= 1.7e-2);
}

// ---------------------------------------------------------------------------------------------------
// Errors.

TEST(ForwardErrors, UnknownLayerIsNamedTogetherWithTheKnownOnes) {
  const Step step(mixed());
  const auto before = verify::snapshot(step.out);
  LayerContext layer = step.layer();
  layer.name = "layers.7.attn";
  const auto found = failures_of([&] {
    step.impl().forward(layer, step.query(), step.cache(), step.output(), step.context());
  });
  EXPECT_TRUE(mentions(found, {"SparseImpl::forward", "'layers.7.attn'", "'layers.3.attn'"}));
  EXPECT_EQ(verify::snapshot(step.out), before);
  EXPECT_TRUE(mentions(failures_of([&] {
                         step.indexer().forward(layer, step.index_query(), step.index_cache.view(),
                                                step.index_table(), step.context());
                       }),
                       {"Indexer::forward", "'layers.7.attn'"}));
}

TEST(ForwardErrors, EveryWrongArgumentIsListedAndTheOutputUntouched) {
  const Step step(mixed());
  const auto before = verify::snapshot(step.out);
  Tensor query = step.query();
  query.shape[1] -= head_dim;
  Tensor output = step.output();
  output.rank = 1;
  Tensor cache = step.cache();
  cache.dtype = DType::f16;
  cache.shape[1] = 5;
  const auto found =
      failures_of([&] { step.impl().forward(step.layer(), query, cache, output, step.context()); });
  EXPECT_TRUE(mentions(found, {"'query'", "[83, 896]", "1024"}));
  EXPECT_TRUE(mentions(found, {"'output'", "1024"}));
  EXPECT_TRUE(mentions(found, {"'kv_cache'", "f16", "bf16"}));
  EXPECT_TRUE(mentions(found, {"'kv_cache'", "5", "num_kv_heads = 2"}));
  EXPECT_EQ(found.size(), 4u);
  EXPECT_EQ(verify::snapshot(step.out), before);
}

TEST(ForwardErrors, BytesAreRefusedWhereTheLayerIsNotFp8) {
  const Step step(mixed());
  Tensor cache = step.cache();
  cache.dtype = DType::u8;
  EXPECT_TRUE(mentions(failures_of([&] {
                         step.impl().forward(step.layer(), step.query(), cache, step.output(),
                                             step.context());
                       }),
                       {"'kv_cache'", "u8", "bf16"}));
}

TEST(ForwardErrors, MissingSelectionAndShortRowsAreNamed) {
  const Step step(mixed());
  LayerContext layer = step.layer();
  layer.topk_indices = {};
  EXPECT_TRUE(mentions(failures_of([&] {
                         step.impl().forward(layer, step.query(), step.cache(), step.output(),
                                             step.context());
                       }),
                       {"'topk_indices'", "missing"}));
  const Tensor few = step.output().narrow(0, 0, 3);
  EXPECT_TRUE(mentions(failures_of([&] {
                         step.impl().forward(step.layer(), step.query(), step.cache(), few,
                                             step.context());
                       }),
                       {"'output'", "3"}));
}

TEST(ForwardErrors, EveryFaultIsListedAtOnceInTheCallsOwnWords) {
  const Step step(mixed());
  LayerContext layer = step.layer();
  layer.topk_indices.dtype = DType::f32;
  ConstTensor query = step.query();
  query.dtype = DType::f32;
  query.shape[1] = 500;
  Tensor output = step.output();
  output.shape[0] = 3;
  Tensor cache = step.cache();
  cache.dtype = DType::u8;
  cache.shape[1] = 3;
  cache.shape[2] = 64;
  std::map<std::string, SparseMetadata> metadata = step.metadata;
  metadata.begin()->second.batch.max_seq_len = -1;
  ForwardContext context = step.context();
  context.metadata = &metadata;
  const auto found = [&](const std::vector<std::string>& failures, const char* call) {
    for (const std::string& failure : failures) {
      EXPECT_EQ(failure.rfind(call, 0), 0u) << failure;
    }
    EXPECT_TRUE(mentions(failures, {"'query' has dtype f32; allowed: bf16, f16"}));
    EXPECT_TRUE(mentions(failures, {"'query' has 500 in dimension 1", "Hq·128 = 1024"}));
    EXPECT_TRUE(mentions(failures, {"'output' has 3 in dimension 0"}));
    EXPECT_TRUE(mentions(failures, {"'kv_cache' has dtype u8; allowed: bf16"}));
    EXPECT_TRUE(mentions(failures, {"'kv_cache' has 3 heads; allowed: num_kv_heads = 2"}));
    EXPECT_TRUE(mentions(failures, {"'kv_cache' has pages of 64 tokens; allowed: 128"}));
    EXPECT_TRUE(mentions(failures, {"'topk_indices' has dtype f32; allowed: i32"}));
    EXPECT_TRUE(mentions(failures, {"'max_seq_len' is -1"}));
    EXPECT_EQ(failures.size(), 8u);
  };
  const SparseImpl impl = step.impl();
  found(failures_of([&] { impl.forward(layer, query, cache, output, context); }),
        "SparseImpl::forward: ");
  found(failures_of([&] { impl.workspace_size(layer, query, cache, output, context); }),
        "SparseImpl::forward: ");
}

TEST(ForwardErrors, TheIndexersFaultsAreListedAtOnce) {
  const Step step(mixed());
  LayerContext layer = step.layer();
  layer.topk_indices.shape[2] = 3;
  layer.topk_indices.dtype = DType::i64;
  ConstTensor index_q = step.index_query();
  index_q.dtype = DType::i32;
  index_q.shape[1] = 255;
  ConstTensor cache = step.index_cache.view();
  cache.shape[1] = 64;
  ConstTensor table = step.index_table();
  table.dtype = DType::i64;
  const auto failures =
      failures_of([&] { step.indexer().forward(layer, index_q, cache, table, step.context()); });
  for (const std::string& failure : failures) EXPECT_EQ(failure.rfind("Indexer::forward: ", 0), 0u);
  EXPECT_TRUE(mentions(failures, {"'index_q' has dtype i32"}));
  EXPECT_TRUE(mentions(failures, {"'index_q' has 255 in dimension 1", "Hi·128 = 256"}));
  EXPECT_TRUE(mentions(failures, {"'topk_indices' has dtype i64"}));
  EXPECT_TRUE(mentions(failures, {"'topk_indices' has 3 in dimension 2", "topk = 4"}));
  EXPECT_TRUE(mentions(failures, {"'index_cache' has pages of 64 tokens"}));
  EXPECT_TRUE(mentions(failures, {"'index_block_table' has dtype i64"}));
}

TEST(ForwardErrors, RanksThatDoNotExistAreNamed) {
  const Step step(mixed());
  for (const int rank : {-1, 6, 1 << 30}) {
    const std::string text = "has rank " + std::to_string(rank);
    LayerContext layer = step.layer();
    ConstTensor query = step.query(), index_q = step.index_query();
    Tensor output = step.output(), cache = step.cache();
    layer.topk_indices.rank = query.rank = index_q.rank = output.rank = cache.rank = rank;
    const auto failures =
        failures_of([&] { step.impl().forward(layer, query, cache, output, step.context()); });
    for (const char* argument : {"'query'", "'kv_cache'", "'output'", "'topk_indices'"}) {
      EXPECT_TRUE(mentions(failures, {argument, text.c_str()})) << argument << rank;
    }
    EXPECT_TRUE(mentions(failures_of([&] {
                           step.indexer().forward(layer, index_q, step.index_cache.view(),
                                                  step.index_table(), step.context());
                         }),
                         {"'index_q'", text.c_str()}));
  }
}

TEST(ForwardErrors, ImpossibleConfigurationsNameEveryField) {
  SparseImpl::Config config;
  config.num_heads = 7;
  config.num_kv_heads = 2;
  config.scale = std::nanf("");
  config.kv_cache_dtype = DType::i32;
  auto found = failures_of([&] { SparseImpl{config}; });
  EXPECT_TRUE(mentions(found, {"'num_heads'", "7", "2"}));
  EXPECT_TRUE(mentions(found, {"'scale'", "nan"}));
  EXPECT_TRUE(mentions(found, {"'kv_cache_dtype'", "i32"}));
  config = {};
  config.num_heads = 17;
  config.num_kv_heads = 1;
  EXPECT_TRUE(mentions(failures_of([&] { SparseImpl{config}; }), {"'num_heads'", "17", "16"}));
  config.num_heads = 0;
  config.num_kv_heads = -1;
  EXPECT_EQ(failures_of([&] { SparseImpl{config}; }).size(), 2u);

  Indexer::Config indexer;
  indexer.num_index_heads = 17;
  indexer.topk = 65;
  indexer.rule = {.init_blocks = -1, .local_blocks = -2};
  EXPECT_EQ(failures_of([&] { Indexer{indexer}; }).size(), 4u);
}

}  // namespace
}  // namespace msa::serving_test
