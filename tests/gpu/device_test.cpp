// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "calls.h"
#include "cuda/place/place.h"
#include "msa/device.h"
#include "msa/error.h"
#include "on_device.h"
#include "scoped_env.h"
#include "verify/attend_problem.h"
#include "verify/cuda_target.h"
#include "verify/index_problem.h"

/// \file
/// What the contract says of calls on a device beside their results: errors leave outputs alone,
/// the stream's device is used and the current one restored, MSA_CHECK=1 looks into device memory,
/// and streams with workspaces of their own do not meet.

namespace msa::gpu_test {
namespace {

using verify::AttendOutput;
using verify::AttendProblem;
using verify::AttendSpec;
using verify::IndexOutput;
using verify::IndexProblem;
using verify::IndexSpec;
using verify::Judge;
using verify::Poison;
using verify::Target;

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const int first = cuda::first_place();
    if (first < 0) GTEST_SKIP() << "no CUDA device";
    unsetenv("MSA_BACKEND");
    // The last usable device, while another one is current where there are two.
    int device = first;
    while (cuda::place_reasons(device + 1).empty()) ++device;
    ASSERT_EQ(cudaSetDevice(first), cudaSuccess);
    current_ = first;
    place_ = cuda::make_place(device);
  }
  void expect_current_device() const {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, current_);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }

  int current_ = 0;
  std::unique_ptr<Place> place_;
};

/// The call's error; "" where there is none.
std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(name(error.code())) + "\n" + error.what();
  }
  return "";
}

class Operators : public DeviceTest {
 protected:
  /// A valid call on the device, then broken ones.
  template <class Args>
  void expect_served_and_refused(const char* op, const Args& host, void (*run)(const Args&)) {
    SCOPED_TRACE(op);
    Moved memory(*place_);
    const Args args = memory.moved(host);
    const std::vector<std::byte> before = memory.contents();
    const auto refused = [&](const char* what, const std::function<void(Args&)>& change) {
      SCOPED_TRACE(what);
      Args broken = args;
      change(broken);
      EXPECT_NE(text_of([&] { run(broken); }), "");
      EXPECT_EQ(memory.contents(), before);
      expect_current_device();
    };
    refused("an input's type", [](Args& a) {
      bool first = true;
      each_tensor(a, [&](auto& tensor) {
        if (!first || !tensor.given()) return;
        tensor.dtype = DType::i64;
        first = false;
      });
    });
    refused("tensors of two devices", [](Args& a) {
      ConstTensor* last = nullptr;
      Tensor* output = nullptr;
      const auto note = [&](auto& tensor) {
        if (!tensor.given()) return;
        if constexpr (std::is_same_v<std::decay_t<decltype(tensor)>, Tensor>) {
          output = &tensor;
        } else {
          last = &tensor;
        }
      };
      each_tensor(a, note);
      if (output != nullptr) output->device.index += 1;
      if (output == nullptr && last != nullptr) last->device.index += 1;
    });
    refused("a device that does not exist",
            [](Args& a) { each_tensor(a, [](auto& tensor) { tensor.device.index = 1000; }); });
    if constexpr (requires { args.workspace; }) {
      if (args.workspace.bytes > 0) {
        refused("a short workspace", [](Args& a) { --a.workspace.bytes; });
      }
    }
    EXPECT_EQ(text_of([&] { run(args); }), "");
    EXPECT_STRNE(last_backend(), "cpu");
    EXPECT_NE(memory.contents(), before);
    expect_current_device();
  }
};

TEST_F(Operators, serve_the_tensors_device_and_errors_leave_outputs_untouched) {
  expect_served_and_refused<AttendArgs>("attend", testing::AttendCall().args, attend);
  expect_served_and_refused<IndexArgs>("index_blocks", testing::IndexCall().args, index_blocks);
  expect_served_and_refused<IndexScoresArgs>("index_scores", testing::ScoresCall().args,
                                             index_scores);
  expect_served_and_refused<SelectArgs>("select_blocks", testing::SelectCall().args, select_blocks);
  expect_served_and_refused<MergeArgs>("merge_states", testing::MergeCall().args, merge_states);
  expect_served_and_refused<WriteCacheArgs>("write_cache", testing::WriteCall().args, write_cache);
  expect_served_and_refused<InsertCacheArgs>("insert_cache", testing::InsertCall().args,
                                             insert_cache);
  expect_served_and_refused<CopyPagesArgs>("copy_pages", testing::CopyCall().args, copy_pages);
}

/// Element `i` of an input that the test's own memory holds.
template <class T>
T& element(const ConstTensor& tensor, std::int64_t i) {
  return const_cast<T*>(tensor.ptr<T>())[i];
}

class Check : public DeviceTest {
 protected:
  /// The device's call must say what the host's says of the same contents, and write nothing.
  template <class Args>
  void expect_same_report(const char* op, const Args& host, void (*run)(const Args&)) {
    SCOPED_TRACE(op);
    Moved memory(*place_);
    const Args args = memory.moved(host);
    const std::vector<std::byte> before = memory.contents();
    const ScopedEnv env("MSA_CHECK", "1");
    const std::string wanted = text_of([&] { run(host); });
    EXPECT_NE(wanted, "");
    EXPECT_EQ(text_of([&] { run(args); }), wanted);
    EXPECT_EQ(memory.contents(), before);
    expect_current_device();
    // What is captured is checked for all but contents.
    const auto recording = place_->record([&] { EXPECT_EQ(text_of([&] { run(args); }), ""); });
    EXPECT_EQ(memory.contents(), before);
    recording->run();
    expect_current_device();
  }
};

TEST_F(Check, reports_what_the_host_would_report) {
  testing::AttendCall attend_call;
  element<std::int32_t>(attend_call.args.batch.block_table, 0) = 99;
  element<std::int32_t>(attend_call.args.selection, 1) = 2143289344;
  element<std::int32_t>(attend_call.args.batch.seq_lens, 1) = 1000;
  element<std::int32_t>(attend_call.args.batch.context_lens, 0) = 5;
  expect_same_report<AttendArgs>("attend", attend_call.args, attend);

  testing::IndexCall index;
  element<std::int32_t>(index.args.batch.block_table, 3) = -7;
  element<std::int32_t>(index.args.batch.cu_seqlens_q, 1) = 4;
  expect_same_report<IndexArgs>("index_blocks", index.args, index_blocks);

  testing::ScoresCall scores;
  element<std::int32_t>(scores.args.batch.seq_lens, 0) = -1;
  expect_same_report<IndexScoresArgs>("index_scores", scores.args, index_scores);

  testing::SelectCall select;
  element<std::int32_t>(select.args.valid_blocks, 2) = 6;
  expect_same_report<SelectArgs>("select_blocks", select.args, select_blocks);

  testing::WriteCall write;
  element<std::int64_t>(write.args.slot_mapping, 1) = 512;
  element<std::int64_t>(write.args.index_slot_mapping, 1) = 1;
  element<std::int64_t>(write.args.positions, 2) = 8;
  expect_same_report<WriteCacheArgs>("write_cache", write.args, write_cache);

  testing::InsertCall insert;
  element<std::int64_t>(insert.args.slot_mapping, 1) = 5;
  expect_same_report<InsertCacheArgs>("insert_cache", insert.args, insert_cache);

  testing::CopyCall copy;
  element<std::int64_t>(copy.args.pairs, 1) = 5;
  expect_same_report<CopyPagesArgs>("copy_pages", copy.args, copy_pages);
}

TEST_F(Check, passes_healthy_calls_with_the_same_bits) {
  std::vector<Target> targets;
  verify::add_cuda_targets(targets);
  for (const Target& target : targets) {
    target.activate();
    AttendSpec spec;
    spec.batch.m = 2;
    spec.batch.decodes = verify::requests({130, 700, 0, 1025});
    spec.batch.prefills = verify::prefills({40}, {300});
    Judge judge;
    AttendProblem problem(target, spec, Poison::nan);
    const AttendOutput plain = problem.run(judge);
    const ScopedEnv env("MSA_CHECK", "1");
    const AttendOutput checked = problem.run(judge);
    EXPECT_EQ(checked.out, plain.out) << target.name;
    EXPECT_TRUE(judge.passed()) << target.name << ": " << judge.outcome().detail;
  }
  unsetenv("MSA_BACKEND");
}

/// Each of a machine's CUDA backends, by eager calls.
std::vector<Target> eager_targets() {
  std::vector<Target> all, eager;
  verify::add_cuda_targets(all);
  for (Target& t : all) {
    if (t.name == "cuda-" + t.backend) eager.push_back(std::move(t));
  }
  return eager;
}

/// The target with a stream of its own, which is given every call many times before anybody waits:
/// work of two such targets is in flight at once.
Target on_stream(const Target& target, Place& place) {
  Target t = target;
  t.stream = place.stream();
  t.synchronize = [&place] { place.synchronize(); };
  t.submit = [](const std::function<void()>& calls) {
    for (int i = 0; i < 100; ++i) calls();
  };
  return t;
}

AttendSpec attend_spec(std::uint64_t seed) {
  AttendSpec s;
  s.hq = 32;
  s.hkv = 2;
  s.batch.m = 2;
  for (std::int64_t r = 0; r < 24; ++r) {
    s.batch.decodes.push_back({2, 100 + r * 97, seed * 1000 + static_cast<std::uint64_t>(r)});
  }
  s.batch.prefills = verify::prefills({70, 3}, {900, 1500}, seed * 1000 + 500);
  s.seed = seed;
  return s;
}

IndexSpec index_spec(std::uint64_t seed, std::int64_t requests) {
  IndexSpec s;
  for (std::int64_t r = 0; r < requests; ++r) {
    s.batch.decodes.push_back({1, 300 + r * 211, seed * 1000 + static_cast<std::uint64_t>(r)});
  }
  s.batch.prefills = verify::prefills({90}, {2000}, seed * 1000 + 500);
  s.seed = seed;
  return s;
}

/// Two problems, each on a stream and in a workspace of its own, from two threads: the bits of
/// calls one after the other.
template <class Problem, class Spec>
void expect_streams_apart(const Target& target, const Spec& a, const Spec& b) {
  SCOPED_TRACE(target.name);
  const std::unique_ptr<Place> places[] = {cuda::make_place(target.device.index),
                                           cuda::make_place(target.device.index)};
  const Target targets[] = {on_stream(target, *places[0]), on_stream(target, *places[1])};
  Problem problems[] = {Problem(targets[0], a, Poison::nan), Problem(targets[1], b, Poison::huge)};
  Judge judges[2];
  using Output = decltype(problems[0].run(judges[0]));
  const Output alone[] = {problems[0].run(judges[0]), problems[1].run(judges[1])};
  std::thread threads[2];
  for (int i = 0; i < 2; ++i) {
    threads[i] = std::thread([&, i] {
      for (int round = 0; round < 3; ++round) {
        verify::same_rows(judges[i], problems[i], alone[i], problems[i], problems[i].run(judges[i]),
                          "together");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Judge& judge : judges) EXPECT_TRUE(judge.passed()) << judge.outcome().detail;
}

TEST_F(DeviceTest, two_streams_with_two_workspaces_never_interfere) {
  for (const Target& target : eager_targets()) {
    target.activate();
    expect_streams_apart<AttendProblem>(target, attend_spec(1), attend_spec(2));
    if (target.backend == "portable") {
      expect_streams_apart<IndexProblem>(target, index_spec(3, 20), index_spec(4, 30));
    }
  }
  unsetenv("MSA_BACKEND");
}

/// A small call in the workspace that a larger one left behind.
template <class Problem, class Spec>
void expect_dirt_does_not_matter(const Target& target, const Spec& small, const Spec& large) {
  SCOPED_TRACE(target.name);
  Judge judge;
  Problem little(target, small, Poison::nan), big(target, large, Poison::huge);
  const auto want = little.run(judge);
  std::size_t bytes = std::max(workspace_size(big.args(verify::Side::target)),
                               workspace_size(little.args(verify::Side::target)));
  bytes = std::max<std::size_t>(bytes, 256);
  const std::unique_ptr<Place> place = cuda::make_place(target.device.index);
  void* const memory = place->allocate(bytes);
  const auto shared = [&](auto& args) { args.workspace = {memory, bytes}; };
  big.run(judge, shared);
  verify::same_rows(judge, little, want, little, little.run(judge, shared), "after a larger call");
  place->free(memory, bytes);
  EXPECT_TRUE(judge.passed()) << judge.outcome().detail;
}

TEST_F(DeviceTest, a_workspace_may_be_left_dirty_by_a_larger_call) {
  for (const Target& target : eager_targets()) {
    target.activate();
    AttendSpec small = attend_spec(5);
    small.batch.decodes.resize(3);
    expect_dirt_does_not_matter<AttendProblem>(target, small, attend_spec(6));
    if (target.backend == "portable") {
      expect_dirt_does_not_matter<IndexProblem>(target, index_spec(7, 2), index_spec(8, 40));
    }
  }
  unsetenv("MSA_BACKEND");
}

}  // namespace
}  // namespace msa::gpu_test
