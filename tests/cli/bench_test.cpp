// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/bench/dense.h"
#include "cli/bench/grid.h"
#include "cli/bench/limits.h"
#include "cli/bench/measure.h"
#include "cli/bench/rates.h"
#include "cli/bench/report.h"
#include "cli/bench/requests.h"
#include "cli/io/generate.h"
#include "common/numeric.h"
#include "cpu/isa.h"
#include "msa/error.h"
#include "reference/reference.h"
#include "scratch.h"

namespace msa::cli {
namespace {

TEST(Bench, MeasureCallsEverySetInTurn) {
  std::vector<std::int64_t> calls;
  const Timing timing =
      measure([&](std::int64_t i) { calls.push_back(i); }, {.min_seconds = 0, .min_calls = 3});
  EXPECT_EQ(calls, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(timing.calls, 3);
  EXPECT_LE(timing.p10, timing.median);
  EXPECT_LE(timing.median, timing.p90);
}

TEST(Bench, EveryInstructionSetReadsTheSameBytes) {
  std::vector<std::uint32_t> words(1003);
  std::uint32_t expected = 0;
  SplitMix64 random(5);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random.next());
  // Vectors add their lanes, the rest is joined by xor: only equality between runs is promised, and
  // that a changed byte shows.
  for (const cpu::Isa isa : cpu::available_isas()) {
    cpu::set_isa_for_testing(isa);
    expected = read_loop(words.data(), words.size() * 4);
    EXPECT_EQ(read_loop(words.data(), words.size() * 4), expected);
    for (const std::size_t at : {0, 500, 1002}) {
      words[at] ^= 1;
      EXPECT_NE(read_loop(words.data(), words.size() * 4), expected) << at;
      words[at] ^= 1;
    }
    EXPECT_GE(product_loop(10), 10.0 * 2 * 10);
  }
}

TEST(Bench, TheSlowerLimitDecides) {
  const Limits limits{.flops = 100, .bandwidth = 10};
  EXPECT_DOUBLE_EQ(best_seconds(limits, 200, 10), 2);
  EXPECT_TRUE(compute_bound(limits, 200, 10));
  EXPECT_DOUBLE_EQ(best_seconds(limits, 200, 40), 4);
  EXPECT_FALSE(compute_bound(limits, 200, 40));
}

TEST(Bench, FlopsCountVisibleSelectedKeys) {
  // One row at position 199 that selects its own block (72 visible keys) and block 0.
  const Workload w{.op = WorkloadOp::decode, .hq = 16, .hkv = 1, .m = 1, .context = 200};
  const Requests requests(w, 10, 1);
  const std::vector<std::int32_t> ids = {0, 1, -1, -1};
  const Work work = attend_work(w, requests, ids);
  EXPECT_DOUBLE_EQ(work.flops, 4.0 * 16 * 128 * 200);
  EXPECT_DOUBLE_EQ(work.bytes, 2 * 128 * 256 * 2.0 + 2 * 16 * 128 * 2.0);
}

// Rows of up to 16 blocks choose all of them, and their keys are not read.
TEST(Bench, IndexWorkCountsTheKeysOfRowsThatMustChoose) {
  const auto work = [](const Workload& w) { return index_work(w, Requests(w, 100, 1)); };
  const double row_bytes = 2.0 * 128 + 4.0 * 16;
  Workload w{.op = WorkloadOp::index, .m = 2, .batch = 3, .context = 2049};
  EXPECT_DOUBLE_EQ(work(w).flops, 3 * 2.0 * 128 * 2049);  // of each request's second row
  EXPECT_DOUBLE_EQ(work(w).bytes, 3 * 2049 * 128 * 2.0 + 6 * row_bytes);
  w.context = 2048;
  EXPECT_DOUBLE_EQ(work(w).flops, 0);
  EXPECT_DOUBLE_EQ(work(w).bytes, 6 * row_bytes);
  const Workload prefill{.op = WorkloadOp::index, .kv = DType::e4m3, .tokens = 4, .context = 2046};
  EXPECT_DOUBLE_EQ(work(prefill).flops, 2.0 * 128 * (2049 + 2050));
  EXPECT_DOUBLE_EQ(work(prefill).bytes, 2050 * 128.0 + 4 * row_bytes);
}

TEST(Bench, BatchesFollowTheWorkload) {
  const Workload w{.op = WorkloadOp::prefill, .tokens = 3, .batch = 2, .context = 130};
  const Requests requests(w, 100, 2);
  const BatchMetadata batch = requests.batch(1);
  EXPECT_EQ(batch.num_prefills, 2);
  EXPECT_EQ(batch.num_actual_tokens, 6);
  EXPECT_EQ(batch.max_seq_len, 133);
  EXPECT_EQ(requests.position(4), 131);
  const std::vector<std::int64_t> slots = requests.slots(1);
  EXPECT_EQ(std::set<std::int64_t>(slots.begin(), slots.end()).size(), 6U);
  EXPECT_EQ(slots[0] % 128, 2);
  // Blocks that share pages cannot be written.
  EXPECT_THROW(Requests(w, 3, 1).slots(0), Error);
}

TEST(Bench, SelectionsComeFromAFileThatFitsTheContext) {
  const Workload real{.op = WorkloadOp::prefill,
                      .hq = 64,
                      .hkv = 4,
                      .tokens = 3,
                      .context = 24'576,
                      .selection = MSA_REAL_SELECTION};
  EXPECT_EQ(label(real),
            "prefill 64/4 bf16 LBHNC tokens 3 batch 1 context 24576 selection "
            "real_selection.npy");
  const std::vector<std::int32_t> ids = selection_of(real, 0);
  ASSERT_EQ(ids.size(), 3U * 4 * 16);
  EXPECT_EQ(*std::max_element(ids.begin(), ids.end()), 24'576 / 128);  // the own block
  EXPECT_EQ(selection_of(real, 1), ids);
  Workload wrong = real;
  wrong.context = 128;
  EXPECT_THROW(selection_of(wrong, 0), Error);
  wrong = real;
  wrong.tokens = 8193;
  EXPECT_THROW(selection_of(wrong, 0), Error);
  wrong = real;
  wrong.batch = 2;
  EXPECT_FALSE(problems(wrong).empty());
}

TEST(Bench, ShapesReplaceValuesOfTheGridAndRepeatsFall) {
  ShapeOptions options;
  options.shard = {"8/1"};
  options.m = {1, 2};
  options.batch = {3};
  options.context = {256};
  options.kv = {"f16"};
  const std::vector<Workload> all = shaped(default_grid(), "decode", options);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(label(all[0]), "decode 8/1 f16 LBHNC m 1 batch 3 context 256");
  EXPECT_EQ(label(all[1]), "decode 8/1 f16 LBHNC m 2 batch 3 context 256");
}

TEST(Bench, AnOperatorOfBothShapesTakesTheLengthsThatAreGiven) {
  const auto index = [](const ShapeOptions& options) {
    std::set<std::pair<std::int64_t, std::int64_t>> lengths;
    for (const Workload& w : shaped(default_grid(), "index", options)) {
      lengths.emplace(w.m, w.tokens);
    }
    return lengths;
  };
  using Lengths = std::set<std::pair<std::int64_t, std::int64_t>>;
  ShapeOptions options;
  options.tokens = {5};
  EXPECT_EQ(index(options), (Lengths{{0, 5}}));
  options.m = {1, 2};
  EXPECT_EQ(index(options), (Lengths{{1, 0}, {2, 0}, {0, 5}}));
  options.tokens = {};
  EXPECT_EQ(index(options), (Lengths{{1, 0}, {2, 0}}));
}

TEST(Bench, WrongShapesAreRefused) {
  const auto refused = [](auto set) {
    ShapeOptions options;
    set(options);
    EXPECT_THROW(shaped(default_grid(), "all", options), Error);
  };
  refused([](ShapeOptions& o) { o.shard = {"16"}; });
  refused([](ShapeOptions& o) { o.shard = {"16/1x"}; });
  refused([](ShapeOptions& o) { o.shard = {"17/1"}; });
  refused([](ShapeOptions& o) { o.kv = {"f8"}; });
  refused([](ShapeOptions& o) { o.layout = {"HNB"}; });
  refused([](ShapeOptions& o) { o.keep = {1.5}; });
  refused([](ShapeOptions& o) { o.batch = {0}; });
}

TEST(Bench, AShapeThatNoCaseTakesIsRefused) {
  const auto failures = [](const std::string& op, const ShapeOptions& options) {
    try {
      shaped(default_grid(), op, options);
    } catch (const Error& error) {
      return error.failures();
    }
    return std::vector<std::string>();
  };
  ShapeOptions options;
  options.tokens = {5};
  options.keep = {0.5};
  EXPECT_EQ(failures("decode", options),
            (std::vector<std::string>{
                "bench: --tokens has no use with decode; allowed with prefill, index, write, layer",
                "bench: --keep has no use with decode; allowed with prefill"}));
  EXPECT_TRUE(failures("prefill", options).empty());
  EXPECT_TRUE(failures("all", options).empty());
  options = {};
  options.m = {2};
  options.batch = {0};
  const std::vector<std::string> found = failures("write", options);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], "bench: --m has no use with write; allowed with decode, index, layer");
  EXPECT_NE(found[1].find("'batch' is 0"), std::string::npos);
}

TEST(Bench, AWrongShapeIsSaidOnceNotOnceACase) {
  ShapeOptions options;
  options.m = {17};
  options.batch = {0};
  try {
    shaped(default_grid(), "decode", options);
    FAIL();
  } catch (const Error& error) {
    const std::string first = "bench: decode 16/1 bf16 LBHNC m 17 batch 0 context 131072: ";
    EXPECT_EQ(error.failures(),
              (std::vector<std::string>{first + "'m' is 17; allowed: 1 to 16",
                                        first + "'batch' is 0; allowed: 1 to 1048576"}));
  }
}

TEST(Bench, ReproducingCommandsNameTheWholeShape) {
  const Workload w{.op = WorkloadOp::prefill, .tokens = 512, .context = 24576, .keep = 970};
  EXPECT_EQ(reproducing_command(w),
            "msa bench prefill --shard 16/1 --kv bf16 --layout LBHNC --batch 1 --tokens 512 "
            "--context 24576 --keep 0.97 --seed 11");
  EXPECT_EQ(reproducing_command({.op = WorkloadOp::decode, .m = 1, .context = 5, .dense = true}),
            "msa bench decode --shard 16/1 --kv bf16 --layout LBHNC --batch 1 --m 1 --context 5 "
            "--keep 0.9 --seed 11 --dense");
}

TEST(Bench, DenseIsForRowsOfDecode) {
  ShapeOptions options;
  options.dense = true;
  EXPECT_TRUE(options.any());
  for (const Workload& w : shaped(default_grid(), "all", options)) {
    EXPECT_EQ(w.dense, w.is_decode() && w.op != WorkloadOp::index) << label(w);
  }
  EXPECT_EQ(shaped(default_grid(), "decode", options).size(),
            shaped(default_grid(), "decode", {}).size());
  EXPECT_THROW(shaped(default_grid(), "prefill", options), Error);
}

/// Dense attention of decode rows by chunks, against one softmax over every key.
TEST(Bench, DenseRowsAttendToAllVisibleKeys) {
  struct Shape {
    std::int64_t hq, hkv, m, batch, context;
    DType kv;
  };
  constexpr std::int64_t chunk = DenseAttend::chunk_blocks * page_size;
  const Shape shapes[] = {{4, 2, 1, 2, 300, DType::bf16},
                          {4, 1, 1, 1, chunk, DType::f16},
                          {2, 1, 4, 2, chunk + 2, DType::bf16},
                          {2, 2, 1, 1, 2 * chunk + 77, DType::e4m3},
                          {2, 1, 16, 1, 3 * chunk + 1, DType::bf16}};
  for (const Shape& shape : shapes) {
    const Workload w{.hq = shape.hq,
                     .hkv = shape.hkv,
                     .kv = shape.kv,
                     .m = shape.m,
                     .batch = shape.batch,
                     .context = shape.context,
                     .dense = true};
    SCOPED_TRACE(label(w));
    Pools pools(host_place(), std::size_t{48} << 20);
    pools.fill_main(w.kv);
    const KVCache cache = main_cache(w, pools);
    const Requests requests(w, cache.shape_view().shape[0], 2);
    DenseAttend dense(w, cache, requests, 2, pools.place);
    for (const std::int64_t set : {0, 1}) {
      dense.call(set);
      const std::int64_t blocks = (w.context + page_size - 1) / page_size;
      std::vector<std::int32_t> all(static_cast<std::size_t>(w.rows() * blocks));
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(blocks));
      }
      AttendArgs args;
      args.q = dense.queries(set);
      args.kv_cache = cache;
      args.selection = ConstTensor::dense(all.data(), DType::i32, {w.rows(), 1, blocks});
      args.batch = requests.batch(set);
      args.out = dense.out();
      const reference::AttendResult wanted = reference::attend(args);
      for (std::int64_t i = 0; i < args.out.numel(); ++i) {
        ASSERT_NEAR(load(args.out.dtype, args.out.data, i), wanted.out[static_cast<std::size_t>(i)],
                    4e-3)
            << "out at " << i;
      }
      for (std::int64_t i = 0; i < dense.lse().numel(); ++i) {
        ASSERT_NEAR(dense.lse().ptr<float>()[i], wanted.lse[static_cast<std::size_t>(i)], 2e-4)
            << "lse at " << i;
      }
    }
  }
}

TEST(Bench, DenseWorkIsEveryVisibleKeyOnce) {
  const Workload w{.hq = 8, .hkv = 2, .kv = DType::e4m3, .m = 2, .batch = 3, .context = 1000};
  const Work work = dense_work(w, Requests(w, 100, 1));
  EXPECT_DOUBLE_EQ(work.flops, 4.0 * 8 * 128 * 3 * (999 + 1000));
  EXPECT_DOUBLE_EQ(work.bytes, 3.0 * 1000 * 2 * 2 * 128 + 6.0 * 2 * 8 * 128 * 2);
}

TEST(Bench, DenseLayersAndDecodeAreTimed) {
  Pools pools(host_place(), std::size_t{48} << 20);
  for (const WorkloadOp op : {WorkloadOp::decode, WorkloadOp::layer}) {
    const Workload w{.op = op, .hq = 4, .m = 1, .batch = 2, .context = 9000, .dense = true};
    const std::unique_ptr<BenchCase> bench = make_case(w, pools);
    const Timing timing =
        measure([&](std::int64_t i) { bench->call(i); }, {.min_seconds = 0, .min_calls = 2});
    EXPECT_GT(timing.median, 0);
    EXPECT_GT(bench->work().bytes, 2.0 * 9000 * 512);
    EXPECT_EQ(bench->backend(), "cpu");
  }
}

TEST(Bench, BaselinesAreReadFromReports) {
  const std::string path = scratch_folder() / "bench_baseline.json";
  std::ofstream(path) << R"({"cases":[{"case":"a","median_s":0.5},{"case":"b"}]})";
  const std::map<std::string, double> medians = read_baseline(path);
  EXPECT_EQ(medians, (std::map<std::string, double>{{"a", 0.5}}));
  for (const char* wrong : {"x", "{}", R"({"cases":3})", R"({"cases":[{}]})",
                            R"({"cases":[{"case":"a","median_s":0}]})"}) {
    std::ofstream(path) << wrong;
    EXPECT_THROW(read_baseline(path), Error) << wrong;
  }
  std::remove(path.c_str());
  EXPECT_THROW(read_baseline(path), Error);
}

}  // namespace
}  // namespace msa::cli
