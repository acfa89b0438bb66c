// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "msa/device.h"

/// \file
/// What this build and this machine are: `msa info`, and the environment block of every report.

namespace msa::cli {

struct BuildInfo {
  std::string compiler;    ///< "GNU 12.2.0"
  std::string type;        ///< "Release"
  std::string flags;       ///< the compiler flags of the build type
  std::string sanitizers;  ///< "address,undefined"; "" = none
};
BuildInfo build_info();

struct MachineInfo {
  std::string cpu;             ///< model name; "unknown" where the system does not tell
  std::string architecture;    ///< "x86_64"
  std::string system;          ///< "Linux 6.1.0"
  int online_cores = 0;        ///< of the machine
  int usable_cores = 0;        ///< that this process may run on
  std::int64_t memory = 0;     ///< bytes of the machine
  std::int64_t available = 0;  ///< bytes that a process could take now
};
MachineInfo machine_info();

/// What of CUDA the build and the machine have.
struct CudaInfo {
  struct Gpu {
    std::string name;
    std::string capability;  ///< "9.0"
    int multiprocessors = 0;
    std::int64_t memory = 0;  ///< bytes
  };
  std::string compiled;   ///< "13.0"; "" = the build holds no CUDA backend
  std::string runtime;    ///< that is linked in
  std::string driver;     ///< "" = none
  std::vector<Gpu> gpus;  ///< cuda:0, cuda:1, …
};
CudaInfo cuda_info();

/// What the CPU backend works with, under switches that may be wrong: `isa` is "" and `threads` 0
/// where the switch for it names nothing that exists.
CpuInfo usable_cpu_info();

/// The backends in the order in which calls try them; the reasons against one that MSA_BACKEND
/// shuts out say so.
std::vector<BackendInfo> usable_backends();

/// Environment variables whose values no call would accept, with the reason in words.
std::vector<std::pair<std::string, std::string>> switch_problems();

/// The environment variables that change what the library does, with their values where set.
std::vector<std::pair<std::string, std::string>> environment_switches();

/// Date, version, command line, build, machine, instruction set, threads, backends: what a reader
/// needs to judge and to repeat a measurement.
Json environment_json(const Console& console);

}  // namespace msa::cli
