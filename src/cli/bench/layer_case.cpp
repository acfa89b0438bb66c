// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <span>

#include "cli/bench/write_inputs.h"
#include "cli/io/generate.h"
#include "msa/layer.h"

namespace msa::cli {
namespace {

/// `layer`: layer_step, that is write_cache → index_blocks → attend.
class LayerCase final : public BenchCase {
 public:
  LayerCase(const Workload& w, Pools& pools)
      : workload_(w),
        place_(pools.place),
        pages_(main_cache(w, pools).shape_view().shape[0]),
        index_pages_(index_cache(w, pools).shape[0]),
        sets_(sets_for(index_work(w, Requests(w, index_pages_, 1)).bytes)),
        requests_(w, pages_, sets_, pools.place),
        index_requests_(w, index_pages_, sets_, pools.place),
        write_(w, pools, sets_, requests_, index_requests_) {
    const std::int64_t ids = w.rows() * w.hkv * generated_topk;
    ids_ = PlacedBuffer(place_, static_cast<std::size_t>(ids) * size_of(DType::i32));
    out_ = PlacedBuffer(
        place_, static_cast<std::size_t>(w.rows() * w.hq * head_dim) * size_of(activation_type(w)));
    workspace_ = PlacedBuffer(place_, workspace_size(args(0)));
  }

  std::int64_t sets() const override { return sets_; }
  void call(std::int64_t i) override { layer_step(args(i % sets_)); }

  Work work() const override {
    ids_.download();
    const std::span ids(ids_.host_as<const std::int32_t>(), ids_.bytes() / sizeof(std::int32_t));
    Work total = write_work(workload_);
    for (const Work& part :
         {index_work(workload_, index_requests_), attend_work(workload_, requests_, ids)}) {
      total.flops += part.flops;
      total.bytes += part.bytes;
    }
    return total;
  }

 private:
  LayerStepArgs args(std::int64_t set) const {
    const Workload& w = workload_;
    LayerStepArgs a;
    a.write = write_.args(set);
    a.index.batch = index_requests_.batch(set);
    a.index.selection = ids_.view(DType::i32, {w.rows(), w.hkv, generated_topk});
    a.index.workspace = {workspace_.data(), workspace_.bytes()};
    a.attend.batch = requests_.batch(set);
    a.attend.out = out_.view(activation_type(w), {w.rows(), w.hq, head_dim});
    return a;
  }

  Workload workload_;
  Place& place_;
  std::int64_t pages_;
  std::int64_t index_pages_;
  std::int64_t sets_;
  Requests requests_;
  Requests index_requests_;
  WriteInputs write_;
  PlacedBuffer ids_;
  PlacedBuffer out_;
  PlacedBuffer workspace_;
};

}  // namespace

std::unique_ptr<BenchCase> make_layer_case(const Workload& workload, Pools& pools) {
  return std::make_unique<LayerCase>(workload, pools);
}

}  // namespace msa::cli
