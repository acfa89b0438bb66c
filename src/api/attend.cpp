// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/attend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "api/batch.h"
#include "api/dispatch.h"

namespace msa {
namespace {

constexpr DTypes activation_types = {DType::bf16, DType::f16};

void check_heads(Checker& check, const ConstTensor& q, std::int64_t kv_heads) {
  const std::int64_t q_heads = q.shape[1];
  if (q_heads <= 0 || kv_heads <= 0) return;  // reported with the shapes
  const bool divides = check.require(q_heads % kv_heads == 0, "q", "has ", q_heads,
                                     " heads; allowed: a multiple of the cache's ", kv_heads, " (",
                                     describe(q), ")");
  if (divides) {
    check.require(q_heads / kv_heads <= max_group, "q", "has ", q_heads, " heads, ",
                  q_heads / kv_heads, " for each of the cache's ", kv_heads, "; allowed: 1 to ",
                  max_group, " (", describe(q), ")");
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
  if (q_ok) check_heads(check, a.q, kv_heads);
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
void check_ids(Checker& check, const AttendArgs& a, const ConstTensor& s) {
  const std::int64_t blocks = (a.batch.max_seq_len + page_size - 1) / page_size;
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

/// MSA_CHECK=1: the cells of the table that attend reads, those of selected blocks that are visible
/// and of this shard. The pages of others need not exist: an engine may have let them go.
class SelectedCells {
 public:
  SelectedCells(Checker& check, const AttendArgs& args, const BatchMetadata& batch,
                const ConstTensor& selection)
      : args_(args),
        batch_(batch),
        selection_(selection),
        table_(check, batch, args.kv_cache.shape_view().shape[0]) {}

  void run() {
    const std::int64_t m = batch_.decode_query_len;
    for (std::int64_t r = 0; r < batch_.num_decodes; ++r) {
      check_request(r, r * m, m, number(batch_.seq_lens, r) - m);
    }
    const std::int64_t first = batch_.num_decode_tokens();
    for (std::int64_t p = 0; p < batch_.num_prefills; ++p) {
      const std::int64_t begin = number(batch_.cu_seqlens_q, p);
      const std::int64_t end = number(batch_.cu_seqlens_q, p + 1);
      check_request(batch_.num_decodes + p, first + begin, end - begin,
                    number(batch_.context_lens, p));
    }
  }

 private:
  static std::int64_t number(const ConstTensor& t, std::int64_t i) {
    return t.ptr<std::int32_t>()[i * t.stride[0]];
  }

  /// `count` rows from `first`, at positions from `position`. Offsets that leave the call have been
  /// reported as such.
  void check_request(std::int64_t request, std::int64_t first, std::int64_t count,
                     std::int64_t position) {
    needed_.clear();
    const std::int64_t end = std::min(first + count, batch_.num_actual_tokens);
    for (std::int64_t t = std::max<std::int64_t>(first, 0); t < end; ++t) {
      add_row(t, visible_blocks(request, position + t - first));
    }
    std::sort(needed_.begin(), needed_.end());
    needed_.erase(std::unique(needed_.begin(), needed_.end()), needed_.end());
    for (const std::int64_t block : needed_) {
      if (!table_.cell(request, block / args_.kv_shard.world)) break;
    }
  }

  std::int64_t visible_blocks(std::int64_t request, std::int64_t position) const {
    const std::int64_t length = std::max<std::int64_t>(number(batch_.seq_lens, request), 0);
    const std::int64_t keys =
        args_.causal ? std::clamp<std::int64_t>(position + 1, 0, length) : length;
    return (keys + page_size - 1) / page_size;
  }

  void add_row(std::int64_t token, std::int64_t blocks) {
    const ConstTensor& s = selection_;
    for (std::int64_t h = 0; h < s.shape[1]; ++h) {
      for (std::int64_t i = 0; i < s.shape[2]; ++i) {
        const std::int64_t id =
            s.ptr<std::int32_t>()[token * s.stride[0] + h * s.stride[1] + i * s.stride[2]];
        const bool mine = id % args_.kv_shard.world == args_.kv_shard.rank;
        if (id >= 0 && id < blocks && mine) needed_.push_back(id);
      }
    }
  }

  const AttendArgs& args_;
  const BatchMetadata& batch_;
  const ConstTensor& selection_;
  TableCheck table_;
  std::vector<std::int64_t> needed_;
};

void check_scales(Checker& check, const AttendArgs& a, HostReader& host) {
  check_factor(check, host, "k_scale", a.k_scale);
  check_factor(check, host, "v_scale", a.v_scale);
}

/// MSA_CHECK=1 before there is a selection: it may come to name any block.
void check_metadata(Checker& check, const AttendArgs& a, HostReader& host) {
  if (!host.reads(a.q.device)) return;
  const BatchMetadata batch = host.read(a.batch);
  check_batch_memory(check, batch);
  check_visible_cells(check, batch, a.kv_cache.shape_view().shape[0], a.kv_shard.rank,
                      a.kv_shard.world);
  check_scales(check, a, host);
}

void check_memory(Checker& check, const AttendArgs& a, HostReader& host) {
  if (!host.reads(a.q.device)) return;
  const BatchMetadata batch = host.read(a.batch);
  const ConstTensor selection = host.read(a.selection, a.batch.num_actual_tokens);
  check_batch_memory(check, batch);
  SelectedCells(check, a, batch, selection).run();
  check_ids(check, a, selection);
  check_scales(check, a, host);
}

}  // namespace

void check_call(const AttendArgs& args) { check_call("attend", args, validate, check_metadata); }

void attend(const AttendArgs& args) { call("attend", args, validate, check_memory); }
void attend(const AttendArgs& args, WorkspaceSource& source) {
  call("attend", args, source, validate, check_memory);
}
void attend(Checker& check, const AttendArgs& args) {
  check_arguments(check, "attend", args, validate, check_memory);
  dispatch("attend", args);
}

std::size_t workspace_size(const AttendArgs& args) { return query("attend", args, validate); }
std::size_t workspace_size(Checker& check, const AttendArgs& args) {
  return query(check, "attend", args, validate);
}

}  // namespace msa
