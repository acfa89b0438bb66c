// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/place.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "apart_place.h"
#include "cli/bench/cases.h"
#include "cli/bench/measure.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

TEST(Place, OnTheHostBothSidesAreOne) {
  const PlacedBuffer buffer(host_place(), 1 << 20);
  EXPECT_EQ(buffer.host(), buffer.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  const PlacedVector<int> vector(host_place(), {1, 2, 3});
  EXPECT_EQ(vector.data(), vector.values().data());
  EXPECT_EQ(vector.view(DType::i32, {3}).device, Device{});
  EXPECT_EQ(device_name(host_place()), "cpu");
}

TEST(Place, ElsewhereBytesGoWhereTheyAreSent) {
  ApartPlace apart;
  {
    PlacedBuffer buffer(apart, 64);
    ASSERT_NE(buffer.host(), buffer.data());
    for (int i = 0; i < 64; ++i) buffer.host_as<char>()[i] = static_cast<char>(i);
    buffer.upload();
    std::memset(buffer.host(), 0, 64);
    buffer.download(8, 4);
    EXPECT_EQ(buffer.host_as<char>()[7], 0);
    EXPECT_EQ(buffer.host_as<char>()[8], 8);
    EXPECT_EQ(buffer.host_as<char>()[11], 11);
    EXPECT_EQ(buffer.host_as<char>()[12], 0);
    const ConstTensor host(buffer.host_as<char>() + 16, DType::u8, {4}, {1});
    const ConstTensor there = buffer.placed(host);
    EXPECT_EQ(there.ptr<char>(), static_cast<const char*>(buffer.data()) + 16);
    EXPECT_EQ(there.device, apart.device());

    PlacedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.bytes(), 64U);
    PlacedVector<std::int32_t> vector(apart, {5, 6, 7});
    ASSERT_NE(vector.data(), vector.values().data());
    EXPECT_EQ(vector.data()[2], 7);
    vector.values() = {8, 9, 10};
    vector.upload(2);
    EXPECT_EQ(vector.data()[1], 9);
    EXPECT_EQ(vector.data()[2], 7);
    const PlacedVector<std::int32_t> empty(apart, {});
    EXPECT_EQ(apart.allocations, 2);
  }
  EXPECT_EQ(apart.allocations, 0);
}

TEST(Place, RecordedCallsRunAllSetsInTurn) {
  std::int64_t next = 0, runs = 0;
  const auto call = [&](std::int64_t i) {
    if (i == 0) {
      next = 0;
      ++runs;
    }
    EXPECT_EQ(i, next++);
  };
  const Timing timing =
      measure_recorded(host_place(), call, 30, {.min_seconds = 0, .min_calls = 3});
  EXPECT_EQ(next, 30);
  EXPECT_EQ(timing.calls, 3 * 30);
  EXPECT_EQ(runs, 1 + 1 + 3);  // one call first, one run to warm up
  EXPECT_EQ(
      measure_recorded(host_place(), [](std::int64_t) {}, 2, {.min_seconds = 0, .min_calls = 1})
          .calls,
      20);
}

std::vector<Workload> small_workloads() {
  using enum WorkloadOp;
  return {{.op = decode, .kv = DType::e4m3, .m = 2, .batch = 2, .context = 1000},
          {.op = prefill, .tokens = 9, .context = 500, .keep = 900},
          {.op = index, .m = 1, .batch = 2, .context = 1000},
          {.op = write, .tokens = 20},
          {.op = layer, .m = 1, .batch = 2, .context = 700}};
}

TEST(Place, BenchCasesRunWhereTheirPoolsAre) {
  ApartPlace apart;
  {
    Pools pools(apart, std::size_t{64} << 20);
    for (const Workload& w : small_workloads()) {
      SCOPED_TRACE(label(w));
      // A table, a slot or a length that had stayed behind would be 0xff…: refused under this
      // check.
      setenv("MSA_CHECK", "1", 1);
      const std::unique_ptr<BenchCase> bench = make_case(w, pools);
      EXPECT_NO_THROW(bench->call(0));
      EXPECT_NO_THROW(bench->call(bench->sets() + 1));
      EXPECT_GT(bench->work().bytes, 0);
      // Few blocks are all chosen, whatever their scores: nothing to compute.
      EXPECT_EQ(bench->work().flops > 0, w.op != WorkloadOp::index);
      unsetenv("MSA_CHECK");
    }
  }
  EXPECT_EQ(apart.allocations, 0);
  for (const Workload& w : small_workloads()) {
    SCOPED_TRACE(label(w));
    expect_refused_for_want_of_the_device([&](Place& place) {
      Pools pools(place, std::size_t{64} << 20);
      make_case(w, pools)->call(0);
    });
  }
}

TEST(Place, TheHostIsThereForEveryone) {
  EXPECT_TRUE(choose_place("test", "cpu")->is_host());
  EXPECT_TRUE(choose_place("test", "auto", "cpu")->is_host());
  EXPECT_THROW(choose_place("test", "cpu", "portable"), Error);
  EXPECT_THROW(choose_place("test", "abacus"), Error);
}

}  // namespace
}  // namespace msa::cli
