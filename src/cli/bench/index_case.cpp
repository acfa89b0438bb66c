// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/requests.h"
#include "cli/io/generate.h"
#include "msa/index.h"

namespace msa::cli {
namespace {

/// `index`: index_blocks with as many index heads as KV heads.
class IndexCase final : public BenchCase {
 public:
  IndexCase(const Workload& w, Pools& pools)
      : workload_(w),
        place_(pools.place),
        cache_(index_cache(w, pools)),
        sets_(sets_for(index_work(w, Requests(w, cache_.shape[0], 1)).bytes)),
        requests_(w, cache_.shape[0], sets_, pools.place) {
    pools.fill_index(cache_.dtype);
    q_ = normal_memory(place_, DType::bf16, sets_ * w.rows() * w.hkv * head_dim, w.seed + 1);
    ids_ = PlacedBuffer(
        place_, static_cast<std::size_t>(w.rows() * w.hkv * generated_topk) * size_of(DType::i32));
    workspace_ = PlacedBuffer(place_, workspace_size(args(0)));
  }

  std::int64_t sets() const override { return sets_; }
  void call(std::int64_t i) override { index_blocks(args(i % sets_)); }
  Work work() const override { return index_work(workload_, requests_); }

 private:
  IndexArgs args(std::int64_t set) const {
    const Workload& w = workload_;
    const std::int64_t offset =
        set * w.rows() * w.hkv * head_dim * static_cast<std::int64_t>(size_of(DType::bf16));
    IndexArgs a;
    a.index_q = Tensor::dense(static_cast<char*>(q_.data()) + offset, DType::bf16,
                              {w.rows(), w.hkv, head_dim}, place_.device());
    a.index_cache = cache_;
    a.batch = requests_.batch(set);
    a.selection = ids_.view(DType::i32, {w.rows(), w.hkv, generated_topk});
    a.workspace = {workspace_.data(), workspace_.bytes()};
    a.stream = place_.stream();
    return a;
  }

  Workload workload_;
  Place& place_;
  Tensor cache_;
  std::int64_t sets_;
  Requests requests_;
  PlacedBuffer q_;
  PlacedBuffer ids_;
  PlacedBuffer workspace_;
};

}  // namespace

std::unique_ptr<BenchCase> make_index_case(const Workload& workload, Pools& pools) {
  return std::make_unique<IndexCase>(workload, pools);
}

}  // namespace msa::cli
