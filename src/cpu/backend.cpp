// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/backend.h"

#include <utility>

#include "cpu/float_environment.h"
#include "cpu/isa.h"
#include "cpu/operators.h"
#include "cpu/parallel.h"
#include "msa/error.h"

namespace msa::cpu {
namespace {

/// The only condition of the CPU backend: memory it can reach.
Reasons host_memory(std::initializer_list<Device> devices) {
  for (const Device& d : devices) {
    if (d.type == DeviceType::cuda) {
      return {"the cpu backend serves tensors in host memory only (device cpu or cuda_host)"};
    }
  }
  return {};
}

/// A wrong switch is an error of every call, also of one that needs no threads and no kernel that
/// an instruction set has a variant of.
void read_switches() {
  ErrorCode code = ErrorCode::unsupported;
  std::vector<std::string> failures;
  const auto add = [&](const Error& error) {
    if (error.code() != ErrorCode::unsupported) code = error.code();
    failures.insert(failures.end(), error.failures().begin(), error.failures().end());
  };
  try {
    chosen_isa();
  } catch (const Error& error) {
    add(error);
  }
  try {
    num_threads();
  } catch (const Error& error) {
    add(error);
  }
  if (!failures.empty()) throw Error(code, std::move(failures));
}

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }
  Reasons unavailable() const override { return {}; }

  Reasons supports(const AttendArgs& a) const override { return host_memory({a.q.device}); }
  Reasons supports(const IndexArgs& a) const override { return host_memory({a.index_q.device}); }
  Reasons supports(const IndexScoresArgs& a) const override {
    return host_memory({a.index_q.device});
  }
  Reasons supports(const SelectArgs& a) const override { return host_memory({a.scores.device}); }
  Reasons supports(const MergeArgs& a) const override { return host_memory({a.out_a.device}); }
  Reasons supports(const WriteCacheArgs& a) const override { return host_memory({a.qkv.device}); }
  Reasons supports(const InsertCacheArgs& a) const override {
    return host_memory({a.k.device, a.index_k.device});
  }
  Reasons supports(const CopyPagesArgs& a) const override {
    return host_memory({a.src.device, a.dst.device});
  }

  std::size_t workspace_size(const AttendArgs& a) const override { return size(a); }
  std::size_t workspace_size(const IndexArgs& a) const override { return size(a); }
  std::size_t workspace_size(const IndexScoresArgs& a) const override { return size(a); }
  std::size_t workspace_size(const SelectArgs& a) const override { return size(a); }

  void run(const AttendArgs& a) const override { serve(cpu::attend, a); }
  void run(const IndexArgs& a) const override { serve(cpu::index_blocks, a); }
  void run(const IndexScoresArgs& a) const override { serve(cpu::index_scores, a); }
  void run(const SelectArgs& a) const override { serve(cpu::select_blocks, a); }
  void run(const MergeArgs& a) const override { serve(cpu::merge_states, a); }
  void run(const WriteCacheArgs& a) const override { serve(cpu::write_cache, a); }
  void run(const InsertCacheArgs& a) const override { serve(cpu::insert_cache, a); }
  void run(const CopyPagesArgs& a) const override { serve(cpu::copy_pages, a); }

 private:
  template <class Args>
  static std::size_t size(const Args& a) {
    read_switches();
    return cpu::workspace_size(a);
  }
  template <class Args>
  static void serve(void (*op)(const Args&), const Args& a) {
    read_switches();
    const FloatEnvironment
        environment;  // of what is computed outside tasks: folded scales, weights
    op(a);
  }
};

}  // namespace

const Backend& backend() {
  static const CpuBackend instance;
  return instance;
}

}  // namespace msa::cpu
