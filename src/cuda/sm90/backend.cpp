// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/backend.h"

#include <string>

#include "cuda/common/call_on_device.h"
#include "cuda/common/device.h"
#include "cuda/common/devices.h"
#include "cuda/common/parts.h"
#include "cuda/sm90/common/reasons.h"
#include "cuda/sm90/decode/decode.h"
#include "cuda/sm90/index/index.h"
#include "cuda/sm90/prefill/prefill.h"

namespace msa::cuda {
namespace {

constexpr int hopper = 90;

class Sm90Backend final : public Backend {
 public:
  const char* name() const override { return "sm90"; }
  Reasons unavailable() const override {
    static const Reasons reasons = device_reasons(hopper, hopper);
    return reasons;
  }

  Reasons supports(const AttendArgs& a) const override {
    return on_hopper(a.q.device, [&] { return sm90::reasons(a); });
  }
  Reasons supports(const IndexArgs& a) const override {
    return on_hopper(a.index_q.device, [&] { return sm90::index::reasons(a.index_cache); });
  }
  Reasons supports(const IndexScoresArgs& a) const override {
    return on_hopper(a.index_q.device, [&] { return sm90::index::reasons(a.index_cache); });
  }
  Reasons supports(const SelectArgs& a) const override {
    return on_hopper(a.scores.device, [] { return Reasons(); });
  }
  Reasons supports(const MergeArgs&) const override { return no_kernel(); }
  Reasons supports(const WriteCacheArgs&) const override { return no_kernel(); }
  Reasons supports(const InsertCacheArgs&) const override { return no_kernel(); }
  Reasons supports(const CopyPagesArgs&) const override { return no_kernel(); }

  std::size_t workspace_size(const AttendArgs&) const override { return 0; }
  std::size_t workspace_size(const IndexArgs& a) const override {
    return sm90::index::workspace_size(a);
  }
  std::size_t workspace_size(const IndexScoresArgs&) const override { return 0; }
  std::size_t workspace_size(const SelectArgs&) const override { return 0; }

  /// The batch's decode rows, then its prefill rows.
  void run(const AttendArgs& a) const override {
    call_on_device("attend", a.q.device, a.stream, [&] {
      if (a.batch.num_decodes > 0) sm90::decode::attend(a);
      if (a.batch.num_actual_tokens > a.batch.num_decode_tokens()) {
        sm90::prefill::attend(prefill_part(a));
      }
    });
  }
  void run(const IndexArgs& a) const override {
    call_on_device("index_blocks", a.index_q.device, a.stream,
                   [&] { sm90::index::index_blocks(a); });
  }
  void run(const IndexScoresArgs& a) const override {
    call_on_device("index_scores", a.index_q.device, a.stream,
                   [&] { sm90::index::index_scores(a); });
  }
  void run(const SelectArgs& a) const override {
    call_on_device("select_blocks", a.scores.device, a.stream,
                   [&] { sm90::index::select_blocks(a); });
  }
  void run(const MergeArgs&) const override {}
  void run(const WriteCacheArgs&) const override {}
  void run(const InsertCacheArgs&) const override {}
  void run(const CopyPagesArgs&) const override {}

  bool capturing(const char* op, Device device, Stream stream) const override {
    return cuda::capturing(op, device, stream);
  }
  void download(const char* op, Device device, Stream stream, void* to, const void* from,
                std::size_t bytes) const override {
    cuda::download(op, device, stream, to, from, bytes);
  }

 private:
  static Reasons no_kernel() {
    return {"the sm90 backend has kernels for attend and the indexer only"};
  }
  /// Why a call on a device is not served: the device, or what `reasons()` says.
  template <class Find>
  static Reasons on_hopper(Device device, Find reasons) {
    if (device.type != DeviceType::cuda) {
      return {"the sm90 backend serves tensors in memory of a CUDA device only"};
    }
    if (capability(device.index) != hopper) {
      return {"the tensors' device has no compute capability 9.0"};
    }
    Reasons all = reasons();
    if (device.index >= max_devices) {
      all.push_back("the sm90 kernels serve the first " + std::to_string(max_devices) + " devices");
    }
    return all;
  }
};

}  // namespace

const Backend& sm90_backend() {
  static const Sm90Backend instance;
  return instance;
}

}  // namespace msa::cuda
