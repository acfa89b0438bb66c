// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "cli/bench/requests.h"
#include "cli/io/generate.h"
#include "msa/attend.h"

namespace msa::cli {
namespace {

/// `decode` and `prefill`: attend on generated selections.
class AttendCase final : public BenchCase {
 public:
  AttendCase(const Workload& w, Pools& pools)
      : workload_(w),
        place_(pools.place),
        cache_(main_cache(w, pools)),
        pages_(cache_.shape_view().shape[0]),
        sets_(sets_for(first_work().bytes)),
        requests_(w, pages_, sets_, pools.place) {
    pools.fill_main(w.kv);
    const DType type = activation_type(w);
    const std::int64_t elements = w.rows() * w.hq * head_dim;
    q_ = normal_memory(place_, type, sets_ * elements, w.seed + 1);
    out_ = PlacedBuffer(place_, static_cast<std::size_t>(sets_ * elements) * size_of(type));
    for (std::int64_t s = 0; s < sets_; ++s) selections_.emplace_back(place_, selection_of(w, s));
    workspace_ = PlacedBuffer(place_, workspace_size(args(0)));
  }

  std::int64_t sets() const override { return sets_; }
  void call(std::int64_t i) override { attend(args(i % sets_)); }
  Work work() const override {
    return attend_work(workload_, requests_, selections_.front().values());
  }

 private:
  Work first_work() const {
    return attend_work(workload_, Requests(workload_, pages_, 1), selection_of(workload_, 0));
  }

  AttendArgs args(std::int64_t set) const {
    const Workload& w = workload_;
    const DType type = activation_type(w);
    const std::int64_t offset =
        set * w.rows() * w.hq * head_dim * static_cast<std::int64_t>(size_of(type));
    AttendArgs a;
    a.q = Tensor::dense(static_cast<char*>(q_.data()) + offset, type, {w.rows(), w.hq, head_dim},
                        place_.device());
    a.out = Tensor::dense(static_cast<char*>(out_.data()) + offset, type,
                          {w.rows(), w.hq, head_dim}, place_.device());
    a.kv_cache = cache_;
    a.selection = selections_[static_cast<std::size_t>(set)].view(
        DType::i32, {w.rows(), w.hkv, generated_topk});
    a.batch = requests_.batch(set);
    a.workspace = {workspace_.data(), workspace_.bytes()};
    a.stream = place_.stream();
    return a;
  }

  Workload workload_;
  Place& place_;
  KVCache cache_;
  std::int64_t pages_;
  std::int64_t sets_;
  Requests requests_;
  PlacedBuffer q_;
  PlacedBuffer out_;
  PlacedBuffer workspace_;
  std::vector<PlacedVector<std::int32_t>> selections_;
};

}  // namespace

std::unique_ptr<BenchCase> make_attend_case(const Workload& workload, Pools& pools) {
  return std::make_unique<AttendCase>(workload, pools);
}

std::unique_ptr<BenchCase> make_case(const Workload& workload, Pools& pools) {
  if (workload.dense) return make_dense_case(workload, pools);
  switch (workload.op) {
    case WorkloadOp::index:
      return make_index_case(workload, pools);
    case WorkloadOp::write:
      return make_write_case(workload, pools);
    case WorkloadOp::layer:
      return make_layer_case(workload, pools);
    case WorkloadOp::decode:
    case WorkloadOp::prefill:
      break;
  }
  return make_attend_case(workload, pools);
}

}  // namespace msa::cli
