// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// \file
/// The CPU backend's only door to threads.

namespace msa::cpu {

/// More than any machine's cores: beyond it a value is a slip, and starting as many threads harm.
inline constexpr int most_threads = 4096;

/// Workers that parallel_for may use, the caller included: `MSA_THREADS`, else the cores this
/// process may run on. Starts nothing. A value of MSA_THREADS that is no number from 1 to
/// most_threads is an Error.
int num_threads();

/// Overrides MSA_THREADS for tests, which compare thread counts in one process; 0 restores it.
void set_num_threads_for_testing(int threads);

/// Runs body(context, i) for every i in [0, tasks); returns when all are done. Tasks may run in any
/// order on any thread: results must not depend on it. Uses the host program's hook where one is
/// set, else a lazily started pool (a forked child starts its own at its first call). Calls from
/// several threads at once are safe, and a call from inside a task runs its tasks inline. Tasks run
/// in the default float environment (nearest even, denormals kept). An exception thrown in a task
/// ends the call early and is rethrown here.
void parallel_for(std::int64_t tasks, void (*body)(void* context, std::int64_t task),
                  void* context);

/// The same for a callable.
template <class Body>
void parallel_for(std::int64_t tasks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  parallel_for(
      tasks, [](void* context, std::int64_t task) { (*static_cast<Plain*>(context))(task); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

/// The calling thread's scratch memory, at least `bytes`, 64-byte aligned, contents arbitrary.
/// Valid until the thread's next call; a task asks once for all that it needs.
void* thread_scratch(std::size_t bytes);

}  // namespace msa::cpu
