// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "msa/export.h"
#include "msa/types.h"

/// \file
/// What serves the calls: backends, CPU instruction sets, threads.

namespace msa {

/// "1.2.3".
MSA_API const char* version();

/// One backend, in the order in which calls try them.
struct BackendInfo {
  std::string name;                  ///< "cpu", …
  std::vector<std::string> reasons;  ///< why it is off on this machine; empty = on
};

/// All backends of this build. `MSA_BACKEND=name` restricts every call to that one.
MSA_API std::vector<BackendInfo> backends();

/// Name of the backend that served this thread's last call; "" before the first.
MSA_API const char* last_backend() noexcept;

/// Called after each operator call with the operator's and the backend's name, on the calling
/// thread.
using LogCallback = void (*)(void* context, const char* op, const char* backend);
/// Sets the process's log callback; null switches it off. Must not be changed while calls run.
MSA_API void set_log_callback(LogCallback callback, void* context) noexcept;

/// CPU instruction sets, lowest first.
struct CpuInfo {
  std::string isa;                     ///< the set in use, "avx2" …
  std::vector<std::string> available;  ///< what this build holds and this machine can execute
  int threads = 1;                     ///< workers of the pool, the caller included
};
/// Reads `MSA_CPU_ISA` and `MSA_THREADS` as calls do; starts no thread.
MSA_API CpuInfo cpu_info();

/// Runs `body(body_context, i)` for every i in [0, tasks), in any order, on any threads, and
/// returns when all are done.
using ParallelFor = void (*)(void* context, std::int64_t tasks,
                             void (*body)(void* body_context, std::int64_t task),
                             void* body_context);
/// Lets a host program's own thread pool run the CPU backend; null restores the built-in pool.
/// Results do not depend on it. Must not be changed while calls run.
MSA_API void set_parallel_for(ParallelFor function, void* context) noexcept;

}  // namespace msa
