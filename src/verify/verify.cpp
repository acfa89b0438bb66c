// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <tuple>

#include "cpu/isa.h"
#ifdef MSA_HAS_CUDA
#include "verify/cuda_target.h"
#endif

namespace msa::verify {
namespace {

/// The process's own memory.
class HostMemory final : public Memory {
 public:
  bool host_visible() const override { return true; }
  void* allocate(std::size_t bytes) override { return ::operator new(bytes); }
  void free(void* pointer) override { ::operator delete(pointer); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

std::vector<Target> targets() {
  static HostMemory memory;
  std::vector<Target> all;
  for (cpu::Isa isa : cpu::available_isas()) {
    Target t;
    t.name = std::string("cpu-") + cpu::name(isa);
    t.backend = "cpu";
    t.memory = &memory;
    t.activate = [isa] {
      unsetenv("MSA_BACKEND");
      cpu::set_isa_for_testing(isa);
    };
    t.synchronize = [] {};
    all.push_back(std::move(t));
  }
#ifdef MSA_HAS_CUDA
  add_cuda_targets(all);
#endif
  return all;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_attend_cases(cases);
  add_copy_cases(cases);
  add_index_cases(cases);
  add_layer_cases(cases);
  add_merge_cases(cases);
  add_write_cases(cases);
  std::stable_sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) {
    return std::tie(a.op, a.group) < std::tie(b.op, b.group);
  });
  return cases;
}

bool applies(const Case& c, const Target& target) {
  if (target.backend == "sm90") {
    return (c.op == "attend" || c.op == "index_blocks" || c.op == "select_blocks") && !c.cpu_only;
  }
  return !c.cpu_only || target.device.type == DeviceType::cpu;
}

Outcome run(const Case& c, const Target& target) {
  try {
    target.activate();
    return c.run(target);
  } catch (const std::exception& e) {
    return {false, std::string("threw: ") + e.what(), 0};
  }
}

}  // namespace msa::verify
