// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "msa/types.h"

/// \file
/// The conformance grid: one table of cases for every backend, run by tests/conformance
/// (GoogleTest) and by `msa verify`. Cases call the public API alone and judge against
/// src/reference.

namespace msa::verify {

/// What a case found on a target.
struct Outcome {
  bool passed = true;
  std::string detail;  // why it failed, the first few reasons
  double worst = 0;    // largest error / allowed error; 0 where only bits were compared
};

/// Memory of a target. Where the host can touch it (the CPU), buffers are their own mirror.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  virtual bool host_visible() const = 0;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* pointer) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
};

/// Where cases run: a backend, a device, and for the CPU one instruction set.
struct Target {
  std::string name;     // "cpu-avx2"
  std::string backend;  // "cpu": what msa::last_backend() must say
  Device device;
  Memory* memory = nullptr;  // outlives the target
  Stream stream;
  std::function<void()> activate;     // makes calls of this process use the target
  std::function<void()> synchronize;  // waits for the stream
  /// Runs operator calls: at once, or captured in a graph that is then launched.
  std::function<void(const std::function<void()>& calls)> submit =
      [](const std::function<void()>& calls) { calls(); };
};

/// One promise, or one cell of a grid.
struct Case {
  std::string op;     // "attend"
  std::string group;  // "decode"; op + '_' + group is the unit that ctest and `msa verify` print
  std::string name;   // "report 20: NaN past the length"
  std::function<Outcome(const Target&)> run;
  bool slow = false;      // large reservations or minutes under a sanitizer
  bool cpu_only = false;  // about threads, instruction sets or sparse mappings
};

/// The targets of this machine: the CPU once per instruction set that it can execute, and each CUDA
/// backend of the first device twice: by eager calls and by CUDA graphs.
std::vector<Target> targets();

/// The table, ordered by op and group; names are unique within a group.
std::vector<Case> all_cases();

/// Whether the case says anything about the target.
bool applies(const Case& c, const Target& target);
/// Activates the target and runs the case; an exception becomes a failed outcome.
Outcome run(const Case& c, const Target& target);

/// Each operator's part of the table.
void add_attend_cases(std::vector<Case>& cases);
void add_copy_cases(std::vector<Case>& cases);
void add_index_cases(std::vector<Case>& cases);  // index_blocks, index_scores, select_blocks
void add_layer_cases(std::vector<Case>& cases);  // layer_step
void add_merge_cases(std::vector<Case>& cases);
void add_write_cases(std::vector<Case>& cases);  // write_cache, insert_cache

}  // namespace msa::verify
