// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/backend.h"

#include "cuda/common/call_on_device.h"
#include "cuda/common/device.h"
#include "cuda/portable/operators.h"

namespace msa::cuda {
namespace {

constexpr int least_capability = 80;  // of the oldest kernels in the build

/// Where a call's tensors must live.
Reasons on_device(Device device) {
  if (device.type == DeviceType::cuda) return {};
  return {"the portable backend serves tensors in memory of a CUDA device only"};
}

Device device_of(const AttendArgs& a) { return a.q.device; }
Device device_of(const IndexArgs& a) { return a.index_q.device; }
Device device_of(const IndexScoresArgs& a) { return a.index_q.device; }
Device device_of(const SelectArgs& a) { return a.scores.device; }
Device device_of(const MergeArgs& a) { return a.out_a.device; }
Device device_of(const WriteCacheArgs& a) { return a.qkv.device; }
Device device_of(const InsertCacheArgs& a) {
  return a.index_cache.given() ? a.index_cache.device : a.kv_cache.shape_view().device;
}
/// One side may be pinned host memory.
Device device_of(const CopyPagesArgs& a) {
  return a.src.device.type == DeviceType::cuda ? a.src.device : a.dst.device;
}

class PortableBackend final : public Backend {
 public:
  const char* name() const override { return "portable"; }
  Reasons unavailable() const override {
    static const Reasons reasons = device_reasons(least_capability, latest_capability);
    return reasons;
  }

  Reasons supports(const AttendArgs& a) const override { return on_device(device_of(a)); }
  Reasons supports(const IndexArgs& a) const override { return on_device(device_of(a)); }
  Reasons supports(const IndexScoresArgs& a) const override { return on_device(device_of(a)); }
  Reasons supports(const SelectArgs& a) const override { return on_device(device_of(a)); }
  Reasons supports(const MergeArgs& a) const override { return on_device(device_of(a)); }
  Reasons supports(const WriteCacheArgs& a) const override { return on_device(device_of(a)); }
  Reasons supports(const InsertCacheArgs& a) const override { return on_device(device_of(a)); }
  Reasons supports(const CopyPagesArgs& a) const override { return on_device(device_of(a)); }

  std::size_t workspace_size(const AttendArgs& a) const override {
    return portable::workspace_size(a);
  }
  std::size_t workspace_size(const IndexArgs& a) const override {
    return portable::workspace_size(a);
  }
  std::size_t workspace_size(const IndexScoresArgs&) const override { return 0; }
  std::size_t workspace_size(const SelectArgs&) const override { return 0; }

  void run(const AttendArgs& a) const override { call("attend", portable::attend, a); }
  void run(const IndexArgs& a) const override { call("index_blocks", portable::index_blocks, a); }
  void run(const IndexScoresArgs& a) const override {
    call("index_scores", portable::index_scores, a);
  }
  void run(const SelectArgs& a) const override {
    call("select_blocks", portable::select_blocks, a);
  }
  void run(const MergeArgs& a) const override { call("merge_states", portable::merge_states, a); }
  void run(const WriteCacheArgs& a) const override {
    call("write_cache", portable::write_cache, a);
  }
  void run(const InsertCacheArgs& a) const override {
    call("insert_cache", portable::insert_cache, a);
  }
  void run(const CopyPagesArgs& a) const override { call("copy_pages", portable::copy_pages, a); }

  bool capturing(const char* op, Device device, Stream stream) const override {
    return cuda::capturing(op, device, stream);
  }
  void download(const char* op, Device device, Stream stream, void* to, const void* from,
                std::size_t bytes) const override {
    cuda::download(op, device, stream, to, from, bytes);
  }

 private:
  template <class Args>
  static void call(const char* op, void (*run)(const Args&), const Args& args) {
    call_on_device(op, device_of(args), args.stream, [&] { run(args); });
  }
};

}  // namespace

const Backend& portable_backend() {
  static const PortableBackend instance;
  return instance;
}

}  // namespace msa::cuda
