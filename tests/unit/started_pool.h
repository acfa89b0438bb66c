// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What a test does before it forks.

#include <atomic>
#include <thread>

#include "cpu/parallel.h"

namespace msa::cpu {

/// Returns when `threads` threads of the pool have run a task each, so that none is still in its
/// first lines. AddressSanitizer (LLVM 14's) allocates there and does not hold its allocator's
/// lock over fork: a child forked meanwhile waits for ever (26 of 240 runs on two busy cores).
inline void start_whole_pool(int threads) {
  set_num_threads_for_testing(threads);
  std::atomic<int> arrived{0};
  parallel_for(threads, [&](std::int64_t) {
    ++arrived;
    while (arrived < threads) std::this_thread::yield();
  });
}

}  // namespace msa::cpu
