// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/merge.h"

#include "api/dispatch.h"
#include "common/step.h"

namespace msa {
namespace {

/// Whether every index means the same element in both: the stride of an extent of 1 leads nowhere,
/// and what stands past the rank is no dimension.
bool same_view(const ConstTensor& a, const ConstTensor& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  if (a.rank < 0 || a.rank > ConstTensor::max_rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] != b.shape[i] || step(a, i) != step(b, i)) return false;
  }
  return true;
}

void validate(Checker& check, const MergeArgs& a) {
  const bool out_ok = check.tensor(
      "out_a", a.out_a,
      {.dtypes = {DType::bf16, DType::f16, DType::f32},
       .extents = {Extent::any("T"), Extent::any("H"), Extent::exactly("128", head_dim)},
       .dense_last = true});
  const Extent tokens = out_ok ? Extent::exactly("T", a.out_a.shape[0]) : Extent::any("T");
  const Extent heads = out_ok ? Extent::exactly("H", a.out_a.shape[1]) : Extent::any("H");
  const auto partial = [&](const char* argument, const ConstTensor& t, bool output) {
    const bool allowed_type =
        a.out_a.dtype == DType::bf16 || a.out_a.dtype == DType::f16 || a.out_a.dtype == DType::f32;
    check.tensor(argument, t,
                 {.dtypes = allowed_type ? DTypes{a.out_a.dtype}
                                         : DTypes{DType::bf16, DType::f16, DType::f32},
                  .extents = {tokens, heads, Extent::exactly("128", head_dim)},
                  .dense_last = true,
                  .output = output});
  };
  const auto log_sum = [&](const char* argument, const ConstTensor& t, bool output) {
    check.tensor(argument, t,
                 {.dtypes = {DType::f32}, .extents = {tokens, heads}, .output = output});
  };
  log_sum("lse_a", a.lse_a, false);
  partial("out_b", a.out_b, false);
  log_sum("lse_b", a.lse_b, false);
  partial("out", a.out, true);
  log_sum("lse", a.lse, true);
  check.same_device({{"out_a", a.out_a},
                     {"lse_a", a.lse_a},
                     {"out_b", a.out_b},
                     {"lse_b", a.lse_b},
                     {"out", a.out},
                     {"lse", a.lse}});
  if (!same_view(a.out, a.out_a)) check.disjoint({"out", a.out}, {{"out_a", a.out_a}});
  if (!same_view(a.lse, a.lse_a)) check.disjoint({"lse", a.lse}, {{"lse_a", a.lse_a}});
  check.disjoint({"out", a.out},
                 {{"lse_a", a.lse_a}, {"out_b", a.out_b}, {"lse_b", a.lse_b}, {"lse", a.lse}});
  check.disjoint({"lse", a.lse}, {{"out_a", a.out_a}, {"out_b", a.out_b}, {"lse_b", a.lse_b}});
}

}  // namespace

void merge_states(const MergeArgs& args) { call("merge_states", args, validate); }

}  // namespace msa
