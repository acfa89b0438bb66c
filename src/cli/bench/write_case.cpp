// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/write_inputs.h"

namespace msa::cli {
namespace {

/// `write`: write_cache of whole rows, index part included.
class WriteCase final : public BenchCase {
 public:
  WriteCase(const Workload& w, Pools& pools)
      : workload_(w),
        sets_(sets_for(write_work(w).bytes)),
        requests_(w, main_cache(w, pools).shape_view().shape[0], sets_, pools.place),
        index_requests_(w, index_cache(w, pools).shape[0], sets_, pools.place),
        inputs_(w, pools, sets_, requests_, index_requests_) {}

  std::int64_t sets() const override { return sets_; }
  void call(std::int64_t i) override { write_cache(inputs_.args(i % sets_)); }
  Work work() const override { return write_work(workload_); }

 private:
  Workload workload_;
  std::int64_t sets_;
  Requests requests_;
  Requests index_requests_;
  WriteInputs inputs_;
};

}  // namespace

std::unique_ptr<BenchCase> make_write_case(const Workload& workload, Pools& pools) {
  return std::make_unique<WriteCase>(workload, pools);
}

}  // namespace msa::cli
