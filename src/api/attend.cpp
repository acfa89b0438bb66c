// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/attend.h"

#include <cmath>

#include "api/batch.h"
#include "api/dispatch.h"

namespace msa {
namespace {

const std::vector<DType> activation_types = {DType::bf16, DType::f16};

void check_heads(Checker& check, std::int64_t q_heads, std::int64_t kv_heads) {
  if (q_heads <= 0 || kv_heads <= 0) return;  // reported with the shapes
  const bool divides = check.require(q_heads % kv_heads == 0, "q", "has ", q_heads,
                                     " heads; allowed: a multiple of the cache's ", kv_heads);
  if (divides) {
    check.require(q_heads / kv_heads <= max_group, "q", "has ", q_heads, " heads, ",
                  q_heads / kv_heads, " for each of the cache's ", kv_heads, "; allowed: 1 to ",
                  max_group);
  }
}

void check_selection(Checker& check, const AttendArgs& a, std::int64_t kv_heads) {
  const bool shape_ok = check.tensor("selection", a.selection,
                                     {.dtypes = {DType::i32},
                                      .extents = {Extent::at_least("T", a.batch.num_actual_tokens),
                                                  Extent::any("Hs"), Extent::any("topk")},
                                      .touched = a.batch.num_actual_tokens > 0});
  if (!shape_ok) return;
  const std::int64_t lists = a.selection.shape[1];
  check.require(lists == 1 || kv_heads == 0 || lists == kv_heads, "selection", "has ", lists,
                " lists a row; allowed: 1 or the cache's ", kv_heads, " heads (",
                describe(a.selection), ")");
  check.range("selection.topk", a.selection.shape[2], 1, max_topk);
}

void validate(Checker& check, const AttendArgs& a) {
  const std::int64_t tokens = a.batch.num_actual_tokens;
  const bool touched = tokens > 0;
  check_batch(check, a.batch);
  const std::int64_t kv_heads = check_kv_cache(check, a.kv_cache, false);
  const bool q_ok =
      check.tensor("q", a.q,
                   {.dtypes = activation_types,
                    .extents = {Extent::at_least("T", tokens), Extent::at_least("Hq", 1),
                                Extent::exactly("128", head_dim)},
                    .dense_last = true,
                    .touched = touched});
  const std::int64_t q_heads = q_ok ? a.q.shape[1] : 0;
  check_heads(check, q_heads, kv_heads);
  check_selection(check, a, kv_heads);

  const Extent heads = q_ok ? Extent::exactly("Hq", q_heads) : Extent::any("Hq");
  if (check.scope() == Scope::call || a.out.given()) {
    check.tensor(
        "out", a.out,
        {.dtypes = activation_types,
         .extents = {Extent::at_least("T", tokens), heads, Extent::exactly("128", head_dim)},
         .dense_last = true,
         .output = true,
         .touched = touched});
  }
  if (a.lse.given()) {
    check.tensor("lse", a.lse,
                 {.dtypes = {DType::f32},
                  .extents = {Extent::at_least("T", tokens), heads},
                  .output = true,
                  .touched = touched});
  }
  check.require(std::isfinite(a.softmax_scale), "softmax_scale", "is ", a.softmax_scale,
                "; allowed: a finite number");
  check.scale("k_scale", a.k_scale);
  check.scale("v_scale", a.v_scale);
  if (check.range("kv_shard.world", a.kv_shard.world, 1, 1 << 30)) {
    check.range("kv_shard.rank", a.kv_shard.rank, 0, a.kv_shard.world - 1);
  }

  check.placement(with_batch({{"q", a.q},
                              {"kv_cache", a.kv_cache.packed},
                              {"k_cache", a.kv_cache.k},
                              {"v_cache", a.kv_cache.v},
                              {"selection", a.selection},
                              {"k_scale", a.k_scale.tensor},
                              {"v_scale", a.v_scale.tensor}},
                             a.batch),
                  {{"out", a.out}, {"lse", a.lse}}, a.workspace);
}

/// MSA_CHECK=1: ids that no healthy indexer writes. The operator itself ignores them.
void check_ids(Checker& check, const AttendArgs& a, HostReader& host) {
  const std::int64_t blocks = (a.batch.max_seq_len + page_size - 1) / page_size;
  const ConstTensor s = host.read(a.selection, a.batch.num_actual_tokens);
  int reported = 0;
  for (std::int64_t t = 0; t < a.batch.num_actual_tokens; ++t) {
    for (std::int64_t h = 0; h < s.shape[1]; ++h) {
      for (std::int64_t i = 0; i < s.shape[2]; ++i) {
        const std::int64_t id =
            s.ptr<std::int32_t>()[t * s.stride[0] + h * s.stride[1] + i * s.stride[2]];
        if ((id < -1 || id >= blocks) && ++reported <= 4) {
          check.fail("selection",
                     cat("holds block ", id, " at [", t, ", ", h, ", ", i,
                         "]; allowed: −1 to ceil(max_seq_len / 128) − 1 = ", blocks - 1));
        }
      }
    }
  }
}

/// MSA_CHECK=1: all but the selection.
void check_metadata(Checker& check, const AttendArgs& a, HostReader& host) {
  if (!host.reads(a.q.device)) return;
  check_batch_memory(check, host.read(a.batch), a.kv_cache.shape_view().shape[0], a.kv_shard.rank,
                     a.kv_shard.world);
}

void check_memory(Checker& check, const AttendArgs& a, HostReader& host) {
  check_metadata(check, a, host);
  if (host.reads(a.q.device)) check_ids(check, a, host);
}

}  // namespace

void check_call(const AttendArgs& args) { check_call("attend", args, validate, check_metadata); }

void attend(const AttendArgs& args) { call("attend", args, validate, check_memory); }
void attend(Checker& check, const AttendArgs& args) {
  check_arguments(check, "attend", args, validate, check_memory);
  dispatch("attend", args);
}

std::size_t workspace_size(const AttendArgs& args) { return query("attend", args, validate); }
std::size_t workspace_size(Checker& check, const AttendArgs& args) {
  return query(check, "attend", args, validate);
}

}  // namespace msa
