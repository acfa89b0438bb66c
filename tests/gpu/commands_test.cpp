// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/bench/cases.h"
#include "cli/bench/limits.h"
#include "cli/bench/measure.h"
#include "cli/io/generate.h"
#include "cli/place.h"
#include "cli/replay/replay.h"
#include "cli/run_inputs.h"
#include "common/numeric.h"
#include "cuda/place/place.h"
#include "msa/device.h"
#include "msa/error.h"
#include "reference/reference.h"
#include "scratch.h"

/// \file
/// What `msa run`, `bench` and `replay` do on a device, without the process around it.

namespace msa::cli {
namespace {

class Commands : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::first_place() < 0) GTEST_SKIP() << "no CUDA device";
    unsetenv("MSA_BACKEND");
    place_ = choose_place("test", "cuda");
  }
  std::unique_ptr<Place> place_;
};

TEST_F(Commands, auto_chooses_the_device_and_its_backends) {
  EXPECT_EQ(device_name(*choose_place("test", "auto")), device_name(*place_));
  EXPECT_EQ(device_name(*choose_place("test", "auto", "portable")), device_name(*place_));
  EXPECT_TRUE(choose_place("test", "auto", "cpu")->is_host());
  EXPECT_NE(place_->description().find(device_name(*place_)), std::string::npos);
  EXPECT_THROW(choose_place("test", "cuda:1000"), Error);
}

/// Prompts that share a prefix, are chunked, decode together and select less than they see.
const std::vector<replay::TraceRequest>& small_trace() {
  static const std::vector<replay::TraceRequest> trace = {{0, 2700, 6, {1, 2, 3, 4, 5, 6}},
                                                          {40, 1300, 9, {1, 2, 7}},
                                                          {90, 130, 12, {8}},
                                                          {400, 2600, 3, {1, 2, 3, 4, 5, 9}}};
  return trace;
}

TEST_F(Commands, replay_serves_every_type_and_layout_and_repeats_its_digest) {
  struct Variant {
    DType kv, index;
    KVLayout layout;
    replay::LayerShape shape;
    std::int64_t draft;
  };
  const Variant variants[] = {
      {DType::bf16, DType::bf16, KVLayout::LBHNC, {16, 1, 1}, 0},
      {DType::e4m3, DType::e4m3, KVLayout::LBNHC, {32, 2, 2}, 3},
      {DType::f16, DType::bf16, KVLayout::BHLNC, {8, 2, 2}, 1},
      {DType::e5m2, DType::bf16, KVLayout::LHBNC, {64, 4, 4}, 0},
      {DType::bf16, DType::e4m3, KVLayout::BLNHC, {4, 1, 1}, 7},
  };
  for (const Variant& v : variants) {
    SCOPED_TRACE(std::string(name(v.kv)) + " " + name(v.layout));
    replay::ReplayOptions options;
    options.all = true;
    options.shape = v.shape;
    options.kv_type = v.kv;
    options.index_type = v.index;
    options.layout = v.layout;
    options.draft = v.draft;
    options.chunk = 512;
    options.layers = v.draft > 0 ? 2 : 1;
    options.max_batch = 3;
    options.verify_rows = 2;
    const replay::ReplayReport report = replay::run_replay(small_trace(), options, {}, *place_);
    EXPECT_EQ(report.scheduler.finished, 4);
    EXPECT_GT(report.checks.rows, 0);
    EXPECT_EQ(report.checks.wrong, 0)
        << (report.checks.complaints.empty() ? "" : report.checks.complaints.front());
    EXPECT_GT(report.checks.attend_l2.worst, 0);
    EXPECT_EQ(report.device, device_name(*place_));
    EXPECT_NE(report.backend, "cpu");
    EXPECT_GT(report.steps.front().times[replay::Phase::attend], 0);
    EXPECT_EQ(replay::run_replay(small_trace(), options, {}, *place_).digest, report.digest);
    // Decode steps were graphs; eager calls give the same bits.
    EXPECT_FALSE(report.captured.empty());
    options.eager = true;
    EXPECT_EQ(replay::run_replay(small_trace(), options, {}, *place_).digest, report.digest);
    options.eager = false;
    // What is checked does not matter, nor does a calibration before.
    options.verify_rows = 0;
    options.all = false;
    options.budget_seconds = 1000;
    EXPECT_EQ(replay::run_replay(small_trace(), options, {}, *place_).digest, report.digest);
  }
}

/// More requests than the bucket's, and a step over the largest one, which is called.
TEST_F(Commands, replay_pads_steps_to_powers_of_two) {
  std::vector<replay::TraceRequest> trace;
  for (std::int64_t r = 0; r < 600; ++r) trace.push_back({0, 100 + r % 50, 3 + r % 4, {}});
  replay::ReplayOptions options;
  options.all = true;
  options.shape = {8, 1, 1};
  options.max_batch = 600;
  options.chunk = 80'000;
  const replay::ReplayReport report = replay::run_replay(trace, options, {}, *place_);
  EXPECT_EQ(report.checks.wrong, 0);
  ASSERT_FALSE(report.captured.empty());
  EXPECT_EQ(report.captured.back(), 512);
  std::int64_t largest = 0;
  for (const replay::StepRecord& step : report.steps) {
    if (step.prefill_tokens == 0) largest = std::max(largest, step.decode_tokens);
  }
  EXPECT_GT(largest, 512);
  options.eager = true;
  EXPECT_EQ(replay::run_replay(trace, options, {}, *place_).digest, report.digest);
}

TEST_F(Commands, replay_counts_a_wrong_row) {
  replay::ReplayOptions options;
  options.all = true;
  options.shape = {8, 1, 1};
  options.verify_rows = 4;
  replay::ReplayHooks hooks;
  hooks.on_computed = [](const replay::StepPlan&, replay::StepTensors& tensors) {
    for (std::int64_t i = 0; i < tensors.out.numel(); ++i) {
      store(tensors.out.dtype, tensors.out.data, i, 1e3);
    }
  };
  EXPECT_GT(replay::run_replay(small_trace(), options, hooks, *place_).checks.wrong, 0);
}

TEST_F(Commands, bench_measures_every_operator) {
  Pools pools(*place_, std::size_t{512} << 20);
  pools.fill_main(DType::bf16);
  const Limits limits = measure_limits(pools);
  EXPECT_GT(limits.flops, 1e12);
  EXPECT_GT(limits.bandwidth, 1e11);
  EXPECT_GE(limits.rates.size(), 2U);
  const Workload workloads[] = {
      {.op = WorkloadOp::decode, .m = 1, .batch = 4, .context = 4000},
      {.op = WorkloadOp::decode, .kv = DType::e4m3, .m = 4, .batch = 2, .context = 4000},
      {.op = WorkloadOp::prefill, .tokens = 33, .context = 1000, .keep = 900},
      {.op = WorkloadOp::index, .m = 1, .batch = 2, .context = 4000},
      {.op = WorkloadOp::write, .tokens = 100},
      {.op = WorkloadOp::layer, .m = 1, .batch = 2, .context = 3000},
      {.op = WorkloadOp::decode, .hq = 8, .m = 4, .batch = 2, .context = 9000, .dense = true},
      {.op = WorkloadOp::layer, .m = 1, .batch = 2, .context = 20000, .dense = true},
  };
  for (const Workload& w : workloads) {
    SCOPED_TRACE(label(w));
    const std::unique_ptr<BenchCase> bench = make_case(w, pools);
    const Timing timing = measure_recorded(*place_, [&](std::int64_t i) { bench->call(i); },
                                           bench->sets(), {.min_seconds = 0, .min_calls = 3});
    EXPECT_GT(timing.median, 0);
    EXPECT_LE(timing.p10, timing.p90);
    EXPECT_GE(timing.calls, 60);
    EXPECT_GT(bench->work().flops, 0);
    EXPECT_NE(bench->backend(), "cpu");
  }
}

/// Tensors of seeded values in a file.
class Inputs {
 public:
  void random(const std::string& name, DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor view = add(name, dtype, shape);
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      store(dtype, view.data, i, static_cast<double>(random_.below(1 << 12)) * 0x1p-10 - 2);
    }
  }
  void integers(const std::string& name, const std::vector<std::int32_t>& values,
                std::initializer_list<std::int64_t> shape) {
    const Tensor view = add(name, DType::i32, shape);
    std::memcpy(view.data, values.data(), values.size() * sizeof(std::int32_t));
  }
  std::string write(const std::string& file) const {
    const std::string path = scratch_folder() / file;
    write_safetensors(path, tensors_, {});
    return path;
  }

 private:
  Tensor add(const std::string& name, DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor view = Tensor::dense(nullptr, dtype, shape);
    memory_.emplace_back(static_cast<std::size_t>(view.numel()) * size_of(dtype));
    view.data = memory_.back().data();
    tensors_.push_back({name, view});
    return view;
  }

  SplitMix64 random_{77};
  std::deque<std::vector<char>> memory_;
  std::vector<TensorToStore> tensors_;
};

/// Two decode requests and a prefill request, four query heads over two KV heads.
Inputs batch(DType type, std::initializer_list<std::int64_t> cache_shape) {
  Inputs inputs;
  inputs.random("q", type, {7, 4, 128});
  inputs.random("kv_cache", type, cache_shape);
  inputs.integers("seq_lens", {130, 300, 200}, {3});
  inputs.integers("block_table", {0, 1, -1, 2, 3, 4, 5, 6, -1}, {3, 3});
  inputs.integers("cu_seqlens_q", {0, 5}, {2});
  return inputs;
}

void expect_reference(Place& place, const std::string& path,
                      const std::map<std::string, std::string>& options) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  RunProblem problem(file, options);
  EXPECT_GT(problem.run(place), 0);
  EXPECT_STRNE(last_backend(), "cpu");
  // With the selection that the device chose, where it chose one.
  const AttendArgs& args = problem.attend_args();
  const reference::AttendResult expected = reference::attend(args);
  for (std::int64_t i = 0; i < args.out.numel(); ++i) {
    ASSERT_NEAR(load(args.out.dtype, args.out.data, i), expected.out[static_cast<std::size_t>(i)],
                1.7e-2)
        << "out at " << i;
  }
  for (std::int64_t i = 0; i < args.lse.numel(); ++i) {
    ASSERT_NEAR(args.lse.ptr<float>()[i], expected.lse[static_cast<std::size_t>(i)], 1e-3)
        << "lse at " << i;
  }
}

TEST_F(Commands, run_agrees_with_the_reference) {
  Inputs given = batch(DType::f16, {7, 2, 128, 256});
  given.integers("selection",
                 {0, 1,  -1, 1, 0, -1, 0, 2, 1,  -1, -1, 2,  0, -1, -1, 1, 0, -1, 1, 1, 1,
                  0, -1, -1, 0, 1, 9,  1, 0, -1, 1,  -1, -1, 0, 1,  -1, 0, 1, -1, 1, 0, -1},
                 {7, 2, 3});
  expect_reference(*place_, given.write("given.safetensors"), {});

  Inputs chosen = batch(DType::bf16, {2, 7, 128, 2, 256});
  chosen.random("index_q", DType::bf16, {7, 2, 128});
  chosen.random("index_k", DType::bf16, {7, 128, 128});
  expect_reference(*place_, chosen.write("chosen.safetensors"),
                   {{"layout", "NHD"}, {"layer", "1"}, {"topk", "2"}, {"k_scale", "0.5"}});
}

}  // namespace
}  // namespace msa::cli
