// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/bench/dense.h"
#include "cli/bench/write_inputs.h"

namespace msa::cli {
namespace {

/// `decode` and `layer` of all visible blocks: attend and its merges; a layer writes first, and
/// needs no index.
class DenseCase final : public BenchCase {
 public:
  DenseCase(const Workload& w, Pools& pools)
      : workload_(w),
        cache_(main_cache(w, pools)),
        pages_(cache_.shape_view().shape[0]),
        sets_(sets_for(dense_work(w, Requests(w, pages_, 1)).bytes)),
        requests_(w, pages_, sets_, pools.place),
        attend_(w, cache_, requests_, sets_, pools.place) {
    pools.fill_main(w.kv);
    if (w.op == WorkloadOp::layer) {
      write_ = std::make_unique<WriteInputs>(w, pools, sets_, requests_, requests_);
    }
  }

  std::int64_t sets() const override { return sets_; }
  void call(std::int64_t i) override {
    if (write_ != nullptr) write_cache(write_->args(i % sets_));
    attend_.call(i % sets_);
  }

  std::string backend() const override { return attend_.backend(); }

  Work work() const override {
    Work total = dense_work(workload_, requests_);
    if (write_ == nullptr) return total;
    const Work write = write_work(workload_);
    total.flops += write.flops;
    total.bytes += write.bytes;
    return total;
  }

 private:
  Workload workload_;
  KVCache cache_;
  std::int64_t pages_;
  std::int64_t sets_;
  Requests requests_;
  DenseAttend attend_;
  std::unique_ptr<WriteInputs> write_;
};

}  // namespace

std::unique_ptr<BenchCase> make_dense_case(const Workload& workload, Pools& pools) {
  return std::make_unique<DenseCase>(workload, pools);
}

}  // namespace msa::cli
