// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/system_info.h"
#include "msa/device.h"

namespace msa::cli {
namespace {

std::string joined(const std::vector<std::string>& words, const char* separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

class Info final : public Command {
 public:
  const char* name() const override { return "info"; }
  const char* summary() const override {
    return "Show version, build, backends, instruction sets and switches";
  }
  void add_options(CLI::App&) override {}

  int run(Console& console) override {
    if (console.text()) print_table(console);
    console.report(environment_json(console));
    return exit_ok;
  }

 private:
  static void print_table(const Console& console) {
    const BuildInfo build = build_info();
    const MachineInfo machine = machine_info();
    const CpuInfo cpu = usable_cpu_info();
    const auto row = [&](const std::string& key, const std::string& value) {
      console.print("{:<14}{}\n", key, value);
    };
    row("version", version());
    row("build", fmt::format("{}, {} ({})", build.type, build.compiler, build.flags));
    if (!build.sanitizers.empty()) row("sanitizers", build.sanitizers);
    row("system", fmt::format("{} {}", machine.system, machine.architecture));
    row("cpu", machine.cpu);
    row("cores", fmt::format("{} of {} usable", machine.usable_cores, machine.online_cores));
    row("memory", fmt::format("{}, {} available", format_bytes(static_cast<double>(machine.memory)),
                              format_bytes(static_cast<double>(machine.available))));
    row("isa", fmt::format("{} (available: {})", cpu.isa.empty() ? "none" : cpu.isa,
                           joined(cpu.available, ", ")));
    row("threads", cpu.threads > 0 ? std::to_string(cpu.threads) : "none");
    const CudaInfo cuda = cuda_info();
    row("cuda", cuda.compiled.empty()
                    ? std::string("not in this build")
                    : fmt::format("compiled with {}, runtime {}, driver {}", cuda.compiled,
                                  cuda.runtime, cuda.driver.empty() ? "none" : cuda.driver));
    for (std::size_t i = 0; i < cuda.gpus.size(); ++i) {
      const CudaInfo::Gpu& gpu = cuda.gpus[i];
      row(fmt::format("cuda:{}", i),
          fmt::format("{}, compute capability {}, {} SMs, {}", gpu.name, gpu.capability,
                      gpu.multiprocessors, format_bytes(static_cast<double>(gpu.memory))));
    }
    console.print("\nbackends, in the order in which calls try them\n");
    for (const BackendInfo& backend : usable_backends()) {
      const bool on = backend.reasons.empty();
      console.print("  {:<12}{}\n", backend.name,
                    on ? console.styled(Style::good, "on")
                       : console.styled(Style::bad, "off") + ": " + joined(backend.reasons, "; "));
    }
    console.print("\nenvironment\n");
    for (const auto& [variable, value] : environment_switches()) {
      console.print("  {:<12}{}\n", variable, value.empty() ? "(not set)" : value);
    }
    for (const auto& [variable, reason] : switch_problems()) {
      console.print("\n{}: every call fails, since {}\n", console.styled(Style::bad, variable),
                    reason);
    }
  }
};

}  // namespace

std::unique_ptr<Command> make_info() { return std::make_unique<Info>(); }

}  // namespace msa::cli
