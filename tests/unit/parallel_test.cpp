// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/sanitizer.h"
#include "msa/device.h"
#include "msa/error.h"
#include "started_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace msa::cpu {
namespace {

/// Runs each test with four threads, whatever the machine has.
class Parallel : public testing::Test {
 protected:
  void SetUp() override { set_num_threads_for_testing(4); }
  void TearDown() override {
    set_parallel_for(nullptr, nullptr);
    set_num_threads_for_testing(0);
  }
};

TEST_F(Parallel, RunsEveryTaskOnce) {
  for (std::int64_t tasks : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> runs(tasks);
    parallel_for(tasks, [&](std::int64_t i) { ++runs[i]; });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_F(Parallel, NegativeCountRunsNothing) {
  int runs = 0;
  parallel_for(-5, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 0);
}

TEST_F(Parallel, UsesSeveralThreads) {
  // Every task waits until two threads have arrived: one thread alone could never finish.
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> arrived{0};
  parallel_for(2, [&](std::int64_t) {
    {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    }
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(Parallel, NestedCallsRunInline) {
  std::atomic<int> inner{0};
  std::atomic<int> foreign{0};
  parallel_for(8, [&](std::int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(5, [&](std::int64_t) {
      ++inner;
      if (std::this_thread::get_id() != outer) ++foreign;
    });
  });
  EXPECT_EQ(inner, 40);
  EXPECT_EQ(foreign, 0);
}

TEST_F(Parallel, CallersFromSeveralThreadsDoNotMix) {
  std::vector<std::thread> callers;
  std::vector<std::int64_t> sums(6);
  for (int c = 0; c < 6; ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<std::int64_t> sum{0};
        parallel_for(17, [&](std::int64_t i) { sum += (i + 1) * (c + 1); });
        sums[c] += sum;
      }
    });
  }
  for (std::thread& t : callers) t.join();
  for (int c = 0; c < 6; ++c) EXPECT_EQ(sums[c], std::int64_t{200} * 153 * (c + 1));
}

TEST_F(Parallel, ExceptionReachesTheCallerAndThePoolLivesOn) {
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(parallel_for(100,
                              [&](std::int64_t i) {
                                if (i == 37) throw std::runtime_error("task 37");
                              }),
                 std::runtime_error);
    std::atomic<int> runs{0};
    parallel_for(10, [&](std::int64_t) { ++runs; });
    EXPECT_EQ(runs, 10);
  }
}

TEST_F(Parallel, HostHookRunsTheTasksAndExceptionsPassIt) {
  struct Counter {
    int calls = 0;
    std::int64_t tasks = 0;
  } counter;
  set_parallel_for(
      [](void* context, std::int64_t tasks, void (*body)(void*, std::int64_t), void* body_context) {
        auto* c = static_cast<Counter*>(context);
        ++c->calls;
        c->tasks += tasks;
        for (std::int64_t i = tasks - 1; i >= 0; --i) body(body_context, i);
      },
      &counter);
  std::vector<int> runs(9);
  parallel_for(9, [&](std::int64_t i) {
    ++runs[i];
    parallel_for(3, [](std::int64_t) {});
  });
  EXPECT_EQ(runs, std::vector<int>(9, 1));
  EXPECT_EQ(counter.calls, 1);
  EXPECT_EQ(counter.tasks, 9);
  EXPECT_THROW(parallel_for(4, [](std::int64_t) { throw std::runtime_error("x"); }),
               std::runtime_error);
}

TEST_F(Parallel, ForkedChildStartsItsOwnPool) {
#if MSA_THREAD_SANITIZER
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts threads";
#elif defined(MSA_TEST_EMULATED)
  GTEST_SKIP() << "qemu's user mode aborts in a forked child that starts threads";
#endif
  start_whole_pool(4);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Needs other threads to end, so a child without them would hang until the alarm.
    alarm(20);
    start_whole_pool(4);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::atomic<int> after{0};
  parallel_for(64, [&](std::int64_t) { ++after; });
  EXPECT_EQ(after, 64);
}

#if defined(__x86_64__)
TEST_F(Parallel, TasksSeeTheDefaultFloatEnvironmentAndTheCallerKeepsItsOwn) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040);  // flush results and operands that are denormal
  std::atomic<int> flushing{0};
  parallel_for(8, [&](std::int64_t) {
    if ((_mm_getcsr() & 0xe040) != 0) ++flushing;
  });
  parallel_for(1, [&](std::int64_t) {
    if ((_mm_getcsr() & 0xe040) != 0) ++flushing;
  });
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(flushing, 0);
  EXPECT_EQ(after & 0x8040, 0x8040u);
}
#endif

TEST_F(Parallel, ScratchIsAlignedPrivateAndGrows) {
  std::mutex mutex;
  std::set<void*> seen;
  std::atomic<int> arrived{0};
  parallel_for(2, [&](std::int64_t i) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100000}}) {
      void* p = thread_scratch(bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
      std::memset(p, static_cast<int>(i), bytes);
    }
    const std::lock_guard lock(mutex);
    seen.insert(thread_scratch(64));
  });
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ParallelThreads, CountComesFromTheEnvironment) {
  // Read once a process, so each value is tried in a child.
  const auto in_child = [](const char* value, auto body) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("MSA_THREADS", value, 1);
      _exit(body() ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  EXPECT_TRUE(in_child("3", [] { return num_threads() == 3 && cpu_info().threads == 3; }));
  EXPECT_TRUE(in_child("4096", [] { return num_threads() == 4096; }));
  EXPECT_TRUE(in_child("", [] { return num_threads() >= 1; }));
  for (const char* wrong : {"0", "-1", "two", "3x", "4097", "536870912", "99999999999", " 3"}) {
    EXPECT_TRUE(in_child(wrong, [&] {
      try {
        num_threads();
        return false;
      } catch (const Error& e) {
        const std::string what = e.what();
        return what.find("MSA_THREADS is '" + std::string(wrong) + "'") != std::string::npos &&
               what.find("from 1 to 4096") != std::string::npos;
      }
    })) << wrong;
  }
}

}  // namespace
}  // namespace msa::cpu
