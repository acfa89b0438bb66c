// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "apart_place.h"
#include "cli/replay/calibrate.h"
#include "cli/replay/digest.h"
#include "cli/replay/plot.h"
#include "cli/replay/replay.h"
#include "cli/replay/report.h"
#include "cli/replay/work.h"
#include "common/numeric.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::replay {
namespace {

/// Prompts that share a prefix, are chunked, decode together and select less than they see.
std::vector<TraceRequest> small_trace() {
  return {{0, 2700, 6, {1, 2, 3, 4, 5, 6}},
          {40, 1300, 9, {1, 2, 7}},
          {90, 130, 12, {8}},
          {400, 2600, 3, {1, 2, 3, 4, 5, 9}}};
}

ReplayOptions small_options() {
  ReplayOptions options;
  options.all = true;
  options.shape = {4, 1, 1};
  options.chunk = 512;
  options.max_batch = 3;
  options.verify_rows = 2;
  return options;
}

ReplayReport run(const ReplayOptions& options, const ReplayHooks& hooks = {}) {
  return run_replay(small_trace(), options, hooks);
}

void expect_served(const ReplayReport& report) {
  EXPECT_EQ(report.scheduler.finished, report.options.requests);
  EXPECT_GT(report.checks.rows, 0);
  EXPECT_EQ(report.checks.wrong, 0)
      << (report.checks.complaints.empty() ? "" : report.checks.complaints.front());
  EXPECT_LE(report.checks.worst_share(), 1);
  EXPECT_GT(report.checks.attend_l2.worst, 0);
}

TEST(ReplayRun, ServesAndChecksASmallTrace) {
  const ReplayReport report = run(small_options());
  expect_served(report);
  EXPECT_EQ(report.scheduler.generated_tokens, 30);
  EXPECT_EQ(report.scheduler.cached_tokens, 1024 + 2560);
  EXPECT_EQ(static_cast<std::int64_t>(report.steps.size()), report.scheduler.steps);
  EXPECT_GT(report.locality.pairs, 0);
}

TEST(ReplayRun, DigestIsTheSameEachTimeAndAfterACalibration) {
  ReplayOptions options = small_options();
  const std::uint64_t digest = run(options).digest;
  EXPECT_EQ(run(options).digest, digest);
  options.all = false;
  options.requests = 0;
  options.budget_seconds = 1000;
  const ReplayReport chosen = run(options);
  EXPECT_EQ(chosen.options.requests, 4);
  EXPECT_GT(chosen.calibration_seconds, 0);
  EXPECT_GT(chosen.predicted_seconds, 0);
  EXPECT_EQ(chosen.digest, digest);
  options.budget_seconds = 1e-9;
  EXPECT_EQ(run(options).options.requests, 1);
}

/// Runs every call's tasks on the calling thread, last first.
void backwards(void*, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
  for (std::int64_t i = tasks; i-- > 0;) body(context, i);
}

TEST(ReplayRun, DigestDoesNotDependOnWhoRunsTheTasks) {
  const std::uint64_t digest = run(small_options()).digest;
  set_parallel_for(&backwards, nullptr);
  const std::uint64_t other = run(small_options()).digest;
  set_parallel_for(nullptr, nullptr);
  EXPECT_EQ(other, digest);
}

TEST(ReplayRun, APlaceWithMemoryOfItsOwnGivesTheSameDigestAndChecks) {
  ReplayOptions options = small_options();
  for (const KVLayout layout : {KVLayout::LBHNC, KVLayout::LBNHC, KVLayout::BHLNC}) {
    SCOPED_TRACE(name(layout));
    options.layout = layout;
    options.shape = {4, 2, 2};
    options.kv_type = layout == KVLayout::LBNHC ? DType::e4m3 : DType::bf16;
    options.draft = layout == KVLayout::BHLNC ? 2 : 0;
    options.layers = layout == KVLayout::LBHNC ? 1 : 3;
    const ReplayReport host = run(options);
    cli::ApartPlace apart;
    const ReplayReport report = run_replay(small_trace(), options, {}, apart);
    EXPECT_EQ(apart.allocations, 0);
    EXPECT_EQ(report.digest, host.digest);
    expect_served(report);
    EXPECT_EQ(report.checks.rows, host.checks.rows);
    EXPECT_EQ(report.checks.worst_share(), host.checks.worst_share());
    EXPECT_EQ(report.locality.jaccard(), host.locality.jaccard());
    EXPECT_GT(report.steps.front().times[Phase::attend], 0);
    // Where there is a device, decode steps are padded to a few batch sizes and replayed.
    EXPECT_TRUE(host.captured.empty());
    EXPECT_FALSE(report.captured.empty());
    for (const std::int64_t requests : report.captured) {
      EXPECT_TRUE(requests == options.max_batch ||
                  std::has_single_bit(static_cast<std::uint64_t>(requests)));
    }
    EXPECT_GT(decode_rates(report.steps)[0].bytes, 0);
    EXPECT_EQ(decode_rates(report.steps)[1].bytes, decode_rates(host.steps)[1].bytes);
    ReplayOptions eager = options;
    eager.eager = true;
    const ReplayReport called = run_replay(small_trace(), eager, {}, apart);
    EXPECT_TRUE(called.captured.empty());
    EXPECT_EQ(called.digest, host.digest);
  }
  cli::expect_refused_for_want_of_the_device(
      [](Place& nowhere) { run_replay(small_trace(), small_options(), {}, nowhere); });
}

/// Steps of up to most_captured requests are padded to a power of two, larger ones called.
TEST(ReplayRun, StepsAreReplayedInBucketsOfPowersOfTwo) {
  std::vector<TraceRequest> trace;
  for (std::int64_t r = 0; r < 520; ++r) trace.push_back({0, 5, 2 + (r < 516 ? 1 : 0), {}});
  ReplayOptions options = small_options();
  options.shape = {1, 1, 1};
  options.max_batch = 520;
  options.chunk = 4096;
  options.verify_rows = 1;
  const std::uint64_t digest = run_replay(trace, options, {}).digest;
  cli::ApartPlace apart;
  const ReplayReport report = run_replay(trace, options, {}, apart);
  EXPECT_EQ(report.digest, digest);
  EXPECT_TRUE(report.captured.empty());  // 520 requests, then 516
  options.max_batch = 300;
  EXPECT_EQ(run_replay(trace, options, {}, apart).captured, (std::vector<std::int64_t>{256, 300}));
}

TEST(ReplayRun, EveryLayerIsComputedOfItsOwnCachesAndChecked) {
  ReplayOptions options = small_options();
  std::set<std::uint64_t> digests;
  for (const std::int64_t layers : {1, 2, 3}) {
    options.layers = layers;
    std::set<const void*> caches;
    ReplayHooks hooks;
    hooks.on_computed = [&](const StepPlan&, const StepTensors& tensors) {
      caches.insert(tensors.write.kv_cache.packed.data);
    };
    const ReplayReport report = run(options, hooks);
    expect_served(report);
    EXPECT_EQ(static_cast<std::int64_t>(caches.size()), layers);
    EXPECT_TRUE(digests.insert(report.digest).second);
    EXPECT_EQ(run(options).digest, report.digest);
  }
}

TEST(ReplayRun, DigestDependsOnSeedAndRequests) {
  ReplayOptions options = small_options();
  std::set<std::uint64_t> digests = {run(options).digest};
  options.seed = 2;
  digests.insert(run(options).digest);
  options.all = false;
  options.requests = 3;
  digests.insert(run(options).digest);
  EXPECT_EQ(digests.size(), 3u);
}

TEST(ReplayRun, DigestDoesNotDependOnWhatIsChecked) {
  ReplayOptions options = small_options();
  const std::uint64_t digest = run(options).digest;
  options.verify_rows = 0;
  EXPECT_EQ(run(options).digest, digest);
}

TEST(ReplayRun, PreemptionsKeepEveryRowRight) {
  ReplayOptions options = small_options();
  options.pages = 24;  // the longest request needs 23
  const ReplayReport report = run(options);
  expect_served(report);
  EXPECT_GT(report.scheduler.evictions, 0);
}

TEST(ReplayRun, RequestsThatAreNotServedNeedNoPages) {
  const std::vector<TraceRequest> trace = {{0, 130, 12, {8}}, {0, 2700, 6, {1, 2, 3, 4, 5, 6}}};
  ReplayOptions options = small_options();
  options.pages = 4;
  EXPECT_THROW(run_replay(trace, options, {}), Error);
  options.all = false;
  options.requests = 1;
  expect_served(run_replay(trace, options, {}));
}

struct Variant {
  const char* name;
  void (*set)(ReplayOptions&);
};

class ReplayVariant : public testing::TestWithParam<Variant> {};

TEST_P(ReplayVariant, ServesWithoutAWrongRow) {
  ReplayOptions options = small_options();
  GetParam().set(options);
  const ReplayReport report = run(options);
  expect_served(report);
  if (options.draft > 0) {
    EXPECT_GT(report.scheduler.drafts_accepted, 0);
    EXPECT_LT(report.scheduler.drafts_accepted, report.scheduler.drafts_proposed);
  }
}

INSTANTIATE_TEST_SUITE_P(ReplayRun, ReplayVariant,
                         testing::Values(Variant{"draft_3", [](ReplayOptions& o) { o.draft = 3; }},
                                         Variant{"draft_15_f16",
                                                 [](ReplayOptions& o) {
                                                   o.draft = 15;
                                                   o.kv_type = DType::f16;
                                                 }},
                                         Variant{"e4m3_LBHNC_8_1",
                                                 [](ReplayOptions& o) {
                                                   o.kv_type = DType::e4m3;
                                                   o.layout = KVLayout::LBHNC;
                                                   o.shape = {8, 1, 1};
                                                 }},
                                         Variant{"e5m2_BLNHC_8_2",
                                                 [](ReplayOptions& o) {
                                                   o.kv_type = DType::e5m2;
                                                   o.layout = KVLayout::BLNHC;
                                                   o.shape = {8, 2, 2};
                                                 }},
                                         Variant{"index_e4m3_BHLNC_8_2",
                                                 [](ReplayOptions& o) {
                                                   o.index_type = DType::e4m3;
                                                   o.layout = KVLayout::BHLNC;
                                                   o.shape = {8, 2, 2};
                                                 }},
                                         Variant{"LHBNC_9_3",
                                                 [](ReplayOptions& o) {
                                                   o.layout = KVLayout::LHBNC;
                                                   o.shape = {9, 3, 3};
                                                 }},
                                         Variant{"three_layers_of_BLHNC_8_2",
                                                 [](ReplayOptions& o) {
                                                   o.layers = 3;
                                                   o.layout = KVLayout::BLHNC;
                                                   o.shape = {8, 2, 2};
                                                 }}),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- The checks find what is wrong ----

using Fault = std::function<void(const StepPlan&, StepTensors&)>;

/// Serves a prompt, puts a fault into one of its late chunks, and checks row `row` of that chunk.
VerifierReport check_after(const Fault& fault, std::int64_t row) {
  ReplayOptions options = small_options();
  options.all = false;
  options.requests = 1;
  options.verify_rows = 1;
  options.chunk = 300;
  Verifier verifier({});
  ReplayHooks hooks;
  hooks.on_computed = [&](const StepPlan& plan, StepTensors& tensors) {
    if (verifier.report().rows > 0 || plan.items[0].seq_len() < 2400) return;
    fault(plan, tensors);
    const std::int64_t token = row < 0 ? plan.tokens() + row : row;
    const bool right = verifier.check_row(plan.items[0], token, token, tensors);
    EXPECT_EQ(right, verifier.report().wrong == 0);
  };
  run(options, hooks);
  EXPECT_EQ(verifier.report().rows, 1);
  return verifier.report();
}

std::uint16_t& element16(const Tensor& t, std::int64_t offset) {
  return static_cast<std::uint16_t*>(t.data)[offset];
}

void expect_complaint(const VerifierReport& report, const std::string& words) {
  EXPECT_EQ(report.wrong, 1);
  ASSERT_EQ(report.complaints.size(), 1u);
  EXPECT_NE(report.complaints[0].find(words), std::string::npos) << report.complaints[0];
}

TEST(ReplayVerifier, AcceptsARowAsItWasComputed) {
  const VerifierReport report = check_after([](const StepPlan&, StepTensors&) {}, 7);
  EXPECT_EQ(report.wrong, 0);
  EXPECT_EQ(cli_exit_code(report), 0);
}

TEST(ReplayVerifier, CountsARowWhoseOutputIsOff) {
  const VerifierReport report = check_after(
      [](const StepPlan&, StepTensors& t) {
        std::uint16_t& x = element16(t.out, 7 * t.out.stride[0] + 5);
        x = float_to_bf16(bf16_to_float(x) + 0.1f);
      },
      7);
  expect_complaint(report, "prefill: wrong attend");
  EXPECT_GT(report.worst_share(), 1);
  EXPECT_EQ(cli_exit_code(report), 1);
}

TEST(ReplayVerifier, CountsARowWhoseOutputIsNotANumber) {
  const VerifierReport report = check_after(
      [](const StepPlan&, StepTensors& t) { element16(t.out, 7 * t.out.stride[0] + 5) = 0x7fc0; },
      7);
  expect_complaint(report, "wrong attend");
  EXPECT_TRUE(std::isinf(report.worst_share()));
}

TEST(ReplayVerifier, CountsARowThatSelectedAWorseBlock) {
  const VerifierReport report = check_after(
      [](const StepPlan&, StepTensors& t) {
        auto* ids = t.selection.ptr<std::int32_t>() + 7 * t.selection.stride[0];
        std::int32_t missing = 0;
        while (ids[missing] == missing) ++missing;
        ids[missing] = missing;  // ascending still, and not the own block, which is the last
      },
      7);
  expect_complaint(report, "index_blocks");
  EXPECT_GT(report.selection.worst, 1);
}

TEST(ReplayVerifier, CountsRowsWhoseIdsAreNoListOfBlocks) {
  for (const auto& spoil : std::vector<std::function<void(std::int32_t*)>>{
           [](std::int32_t* ids) { ids[0] = -1; }, [](std::int32_t* ids) { ids[3] = ids[4]; },
           [](std::int32_t* ids) { std::swap(ids[3], ids[4]); },
           [](std::int32_t* ids) { ids[15] = 1 << 20; }}) {
    const Fault fault = [&](const StepPlan&, StepTensors& t) {
      spoil(t.selection.ptr<std::int32_t>() + 7 * t.selection.stride[0]);
    };
    expect_complaint(check_after(fault, 7), "index_blocks");
  }
}

/// Where the last token of a step's first item stands in the caches.
struct LastSlot {
  std::int64_t page, index_page, offset;

  explicit LastSlot(const StepItem& item)
      : page(item.pages[at(item)]),
        index_page(item.index_pages[at(item)]),
        offset((item.seq_len() - 1) % page_size) {}
  static std::size_t at(const StepItem& item) {
    return static_cast<std::size_t>((item.seq_len() - 1) / page_size);
  }
};

TEST(ReplayVerifier, CountsRowsWrittenWrongly) {
  // One bit of a mantissa, some ulps: k, v, index_k, q, index_q of the step's last token.
  const auto flip = [](const Tensor& t, std::int64_t offset) { element16(t, offset) ^= 0x0008; };
  const Fault faults[] = {
      [&](const StepPlan& plan, StepTensors& t) {
        const LastSlot slot(plan.items[0]);
        const Tensor& kv = t.write.kv_cache.packed;
        flip(kv, slot.page * kv.stride[0] + slot.offset * kv.stride[2] + 3);
      },
      [&](const StepPlan& plan, StepTensors& t) {
        const LastSlot slot(plan.items[0]);
        const Tensor& kv = t.write.kv_cache.packed;
        flip(kv, slot.page * kv.stride[0] + slot.offset * kv.stride[2] + head_dim + 3);
      },
      [&](const StepPlan& plan, StepTensors& t) {
        const LastSlot slot(plan.items[0]);
        const Tensor& cache = t.write.index_cache;
        flip(cache, slot.index_page * cache.stride[0] + slot.offset * cache.stride[1] + 100);
      },
      [&](const StepPlan& plan, StepTensors& t) {
        flip(t.write.q_out, (plan.tokens() - 1) * t.write.q_out.stride[0] + 70);
      },
      [&](const StepPlan& plan, StepTensors& t) {
        flip(t.write.index_q_out, (plan.tokens() - 1) * t.write.index_q_out.stride[0] + 70);
      }};
  for (const Fault& fault : faults) {
    const VerifierReport report = check_after(fault, -1);
    expect_complaint(report, "write_cache");
    EXPECT_GT(report.write.worst, 1);
  }
}

TEST(ReplayVerifier, SampledRowsOfAFaultyRunAreCounted) {
  ReplayHooks hooks;
  hooks.on_computed = [](const StepPlan& plan, StepTensors& t) {
    for (std::int64_t row = 0; row < plan.tokens(); ++row) {
      element16(t.out, row * t.out.stride[0] + 5) = float_to_bf16(3.0f);
    }
  };
  const ReplayReport report = run(small_options(), hooks);
  EXPECT_GT(report.checks.rows, 20);
  EXPECT_EQ(report.checks.wrong, report.checks.rows);
  EXPECT_EQ(cli_exit_code(report.checks), 1);
}

TEST(ReplayVerifier, SpendsItsShareOnTheSameRowsEachTime) {
  ReplayOptions options = small_options();
  options.verify_rows = 0;
  const std::int64_t rows = run(options).checks.rows;
  EXPECT_GT(rows, 0);
  EXPECT_EQ(run(options).checks.rows, rows);
}

// ---- Activations ----

std::vector<std::uint16_t> rows_of(const Activations& activations, const LayerShape& shape,
                                   const Content& content, std::int64_t first, std::int64_t count,
                                   std::int64_t kept) {
  std::vector<std::uint16_t> rows(static_cast<std::size_t>(count * shape.row_elements()));
  activations.fill(content, first, count, kept, rows.data());
  return rows;
}

TEST(ReplayActivations, AreAFunctionOfTextAndPositionAlone) {
  const LayerShape shape{4, 2, 2};
  const Activations activations(shape, DType::bf16, 1);
  const auto contents = contents_of(small_trace(), 1);
  const auto row = static_cast<std::size_t>(shape.row_elements());
  const auto whole = rows_of(activations, shape, contents[0], 0, 1100, 1100);
  // In other chunks, of another request with the same prefix.
  for (const std::int64_t first : {0, 1, 37, 512, 1000}) {
    const auto part = rows_of(activations, shape, contents[3], first, 24, 24);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + static_cast<std::size_t>(first) * row,
                          part.size() * 2),
              0)
        << first;
  }
  // The third group is another text; so is a draft that turns out wrong.
  const auto other = rows_of(activations, shape, contents[1], 1024, 1, 1);
  EXPECT_NE(std::memcmp(other.data(), whole.data() + 1024 * row, row * 2), 0);
  const auto draft = rows_of(activations, shape, contents[0], 1024, 2, 1);
  EXPECT_EQ(std::memcmp(draft.data(), whole.data() + 1024 * row, row * 2), 0);
  EXPECT_NE(std::memcmp(draft.data() + row, whole.data() + 1025 * row, row * 2), 0);
}

TEST(ReplayActivations, HaveUnitVarianceInBothTypes) {
  const LayerShape shape{4, 1, 1};
  const auto contents = contents_of(small_trace(), 1);
  for (const DType type : {DType::bf16, DType::f16}) {
    const Activations activations(shape, type, 3);
    const auto rows = rows_of(activations, shape, contents[0], 0, 400, 400);
    const std::int64_t noise = (shape.q_heads + 2 * shape.kv_heads) * head_dim;
    double sum = 0, squares = 0;
    for (std::int64_t t = 0; t < 400; ++t) {
      for (std::int64_t d = 0; d < noise; ++d) {
        const double x = load(type, rows.data(), t * shape.row_elements() + d);
        sum += x;
        squares += x * x;
      }
    }
    const double count = 400.0 * static_cast<double>(noise);
    EXPECT_NEAR(sum / count, 0, 0.02);
    EXPECT_NEAR(squares / count, 1, 0.02);
  }
}

TEST(ReplayActivations, MakeSelectionsAsLocalAsARealModels) {
  std::vector<TraceRequest> trace = {{0, 12000, 1, {}}};
  ReplayOptions options = small_options();
  options.requests = 1;
  options.all = false;
  const ReplayReport report = run_replay(trace, options, {});
  // A model's own selections: 0.56 to 0.94, by model and head.
  EXPECT_GT(report.locality.jaccard(), 0.7);
  EXPECT_LT(report.locality.jaccard(), 0.95);
}

// ---- Small parts ----

TEST(ReplayDigest, IsXxh64) {
  EXPECT_EQ(xxh64("", 0, 0), 0xEF46DB3751D8E999u);
  EXPECT_EQ(xxh64("a", 1, 0), 0xD24EC4F1A98C6E5Bu);
  EXPECT_EQ(xxh64("abc", 3, 0), 0x44BC2CF5AD770999u);
  const char* text = "Nobody inspects the spammish repetition";
  EXPECT_EQ(xxh64(text, std::strlen(text), 0), 0xFBCEA83C8A378BF1u);
}

TEST(ReplayWork, SumsTheKeysThatRowsSee) {
  for (const std::int64_t first : {0, 5, 9, 10, 30}) {
    double sum = 0;
    for (std::int64_t p = first; p < first + 8; ++p) {
      sum += static_cast<double>(std::min<std::int64_t>(p + 1, 10));
    }
    EXPECT_EQ(sum_of_keys(first, 8, 10), sum) << first;
  }
}

TEST(ReplayWork, ChoosesTheMostRequestsThatFit) {
  const std::vector<TraceRequest> trace(10, TraceRequest{0, 100, 1, {}});
  const auto contents = contents_of(trace, 1);
  SchedulerConfig config;
  config.pages = 100;
  CostModel model;
  model.token = 0.001;  // 0.1 s a request
  const auto chosen = [&](double seconds) {
    return choose_requests(model, {}, trace, contents, config, seconds);
  };
  EXPECT_EQ(chosen(0.55), 5);
  EXPECT_EQ(chosen(100), 10);
  EXPECT_EQ(chosen(0.01), 1);
}

TEST(ReplayReportText, PercentilesAreSamples) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3}, 0.99), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.9), 4);
}

TEST(ReplayReportText, NamesEveryOptionThatIsNotTheDefault) {
  ReplayOptions options;
  options.requests = 7;
  options.pages = 99;
  EXPECT_EQ(reproducing_command("t.csv", options, "cpu"),
            "msa replay t.csv --requests 7 --seed 1 --pages 99 --device cpu");
  options.shape = {64, 4, 4};
  options.kv_type = DType::e4m3;
  options.index_type = DType::e4m3;
  options.layout = KVLayout::LBNHC;
  options.layers = 4;
  options.draft = 3;
  options.chunk = 100;
  options.max_batch = 2;
  options.verify_rows = 1;
  options.seed = 9;
  options.eager = true;
  EXPECT_EQ(
      reproducing_command("t.csv", options, "cuda:1"),
      "msa replay t.csv --requests 7 --seed 9 --shard 64/4 --layers 4 --kv e4m3 --index-kv e4m3 "
      "--layout LBNHC --max-batch 2 --chunk 100 --draft 3 --verify-rows 1 --eager --pages 99 "
      "--device cuda:1");
}

TEST(ReplayOptionsCheck, ListsEveryWrongOption) {
  ReplayOptions options = small_options();
  options.requests = 5;
  options.shape = {40, 2, 2};
  options.kv_type = DType::f32;
  options.index_type = DType::f16;
  options.budget_seconds = 0;
  options.verify_rows = -1;
  options.layers = 17;
  try {
    run(options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.failures().size(), 7u) << error.what();
  }
}

TEST(ReplayPlot, IsOneSvgDocumentWithTheRunsNumbers) {
  const ReplayReport report = run(small_options());
  const std::string svg = plot_svg("dir/a<b&c.jsonl", report);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b&amp;c.jsonl"), std::string::npos);
  EXPECT_NE(svg.find(digest_text(report.digest)), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace msa::replay
