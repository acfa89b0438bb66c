// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/system_info.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/dispatch.h"
#include "cpu/isa.h"
#include "cpu/parallel.h"
#include "msa/error.h"
#ifdef MSA_HAS_CUDA
#include "cuda/place/place.h"
#endif

namespace msa::cli {
namespace {

/// The value of the first line "key : value" of a /proc file; "" where there is none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::int64_t meminfo_bytes(const std::string& key) {
  return std::strtoll(proc_value("/proc/meminfo", key).c_str(), nullptr, 10) * 1024;
}

int usable_cores(int online) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : online;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// What keeps a function from its result; "" where nothing does.
template <class Function>
std::string problem_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// \throws Error where MSA_BACKEND leaves no backend that could serve a call.
void check_some_backend_is_on() {
  Reasons reasons;
  for (const Backend* backend : eligible_backends()) {
    const Reasons off = backend->unavailable();
    if (off.empty()) return;
    reasons.insert(reasons.end(), off.begin(), off.end());
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("MSA_BACKEND is '{}', which is off: {}", std::getenv("MSA_BACKEND"),
                          fmt::join(reasons, "; ")));
}

Json cuda_json() {
  const CudaInfo info = cuda_info();
  if (info.compiled.empty()) return {};
  Json gpus = Json::array();
  for (const CudaInfo::Gpu& gpu : info.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"compute_capability", gpu.capability},
                    {"multiprocessors", gpu.multiprocessors},
                    {"memory_bytes", gpu.memory}});
  }
  return {{"compiled", info.compiled},
          {"runtime", info.runtime},
          {"driver", info.driver.empty() ? Json() : Json(info.driver)},
          {"devices", gpus}};
}

Json backends_json() {
  Json list = Json::array();
  for (const BackendInfo& backend : usable_backends()) {
    list.push_back({{"name", backend.name},
                    {"available", backend.reasons.empty()},
                    {"reasons", backend.reasons}});
  }
  return list;
}

}  // namespace

BuildInfo build_info() {
  return {MSA_BUILD_COMPILER, MSA_BUILD_TYPE, trimmed(MSA_BUILD_FLAGS), MSA_BUILD_SANITIZE};
}

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = proc_value("/proc/cpuinfo", "model name");
  if (info.cpu.empty()) info.cpu = "unknown";
  utsname system{};
  if (uname(&system) == 0) {
    info.architecture = system.machine;
    info.system = std::string(system.sysname) + " " + system.release;
  }
  info.online_cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  info.usable_cores = usable_cores(info.online_cores);
  info.memory = meminfo_bytes("MemTotal");
  info.available = meminfo_bytes("MemAvailable");
  return info;
}

CudaInfo cuda_info() {
  CudaInfo info;
#ifdef MSA_HAS_CUDA
  const cuda::Machine machine = cuda::machine();
  info.compiled = machine.compiled;
  info.runtime = machine.runtime;
  info.driver = machine.driver;
  for (const cuda::Machine::Gpu& gpu : machine.gpus) {
    info.gpus.push_back(
        {gpu.name, std::to_string(gpu.capability / 10) + "." + std::to_string(gpu.capability % 10),
         gpu.multiprocessors, static_cast<std::int64_t>(gpu.memory)});
  }
#endif
  return info;
}

CpuInfo usable_cpu_info() {
  CpuInfo info;
  info.threads = 0;
  for (const cpu::Isa isa : cpu::available_isas()) info.available.emplace_back(cpu::name(isa));
  problem_of([&] { info.isa = cpu::name(cpu::chosen_isa()); });
  problem_of([&] { info.threads = cpu::num_threads(); });
  return info;
}

std::vector<BackendInfo> usable_backends() {
  std::vector<BackendInfo> all = backends();
  std::vector<const Backend*> eligible;
  if (!problem_of([&] { eligible = eligible_backends(); }).empty()) return all;
  for (BackendInfo& info : all) {
    const auto is_this = [&](const Backend* backend) { return info.name == backend->name(); };
    if (std::any_of(eligible.begin(), eligible.end(), is_this)) continue;
    info.reasons.insert(info.reasons.begin(),
                        fmt::format("MSA_BACKEND is '{}'", std::getenv("MSA_BACKEND")));
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> switch_problems() {
  std::vector<std::pair<std::string, std::string>> problems;
  const auto look = [&](const char* variable, const std::string& problem) {
    if (!problem.empty()) problems.emplace_back(variable, problem);
  };
  look("MSA_BACKEND", problem_of([] { check_some_backend_is_on(); }));
  look("MSA_CPU_ISA", problem_of([] { cpu::chosen_isa(); }));
  look("MSA_THREADS", problem_of([] { cpu::num_threads(); }));
  look("MSA_CHECK", problem_of([] { metadata_checks_enabled(); }));
  return problems;
}

std::vector<std::pair<std::string, std::string>> environment_switches() {
  std::vector<std::pair<std::string, std::string>> switches;
  for (const char* name : {"MSA_BACKEND", "MSA_CPU_ISA", "MSA_THREADS", "MSA_CHECK", "NO_COLOR"}) {
    const char* value = std::getenv(name);
    switches.emplace_back(name, value == nullptr ? "" : value);
  }
  return switches;
}

Json environment_json(const Console& console) {
  const BuildInfo build = build_info();
  const MachineInfo machine = machine_info();
  const CpuInfo cpu = usable_cpu_info();
  Json problems = Json::object();
  for (const auto& [name, reason] : switch_problems()) problems[name] = reason;
  Json switches = Json::object();
  for (const auto& [name, value] : environment_switches()) {
    if (!value.empty()) switches[name] = value;
  }
  return {{"date", utc_now()},
          {"version", version()},
          {"command", console.command_line()},
          {"build",
           {{"compiler", build.compiler},
            {"type", build.type},
            {"flags", build.flags},
            {"sanitizers", build.sanitizers}}},
          {"cpu",
           {{"model", machine.cpu},
            {"architecture", machine.architecture},
            {"cores", machine.online_cores},
            {"usable_cores", machine.usable_cores},
            {"isa", cpu.isa.empty() ? Json() : Json(cpu.isa)},
            {"isas_available", cpu.available},
            {"threads", cpu.threads > 0 ? Json(cpu.threads) : Json()}}},
          {"memory_bytes", machine.memory},
          {"cuda", cuda_json()},
          {"system", machine.system},
          {"backends", backends_json()},
          {"switches", switches},
          {"switch_problems", problems}};
}

}  // namespace msa::cli
