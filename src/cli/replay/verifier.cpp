// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "cli/replay/digest.h"
#include "cli/replay/work.h"
#include "common/numeric.h"
#include "cpu/parallel.h"
#include "reference/reference.h"

namespace msa::replay {
namespace {

// Tolerances of the contract's section 9.
constexpr double attend_max_abs = 1.7e-2;
constexpr double attend_mean_abs = 2.5e-4;
constexpr std::int64_t attend_mean_keys = 512;  // rows that average fewer have no mean bound
constexpr double attend_relative_l2 = 4e-3;
constexpr double lse_abs = 1e-4, lse_relative = 0x1p-20;
constexpr double score_abs = 1e-2;
constexpr double rotated_pair = 0x1p-20;  // of the pair's norm

// One multiply-add of the reference, in those of the operators: on two AVX2 cores, the f64 loops
// over one row take the time that the operators need for so many times the work.
constexpr double reference_index_cost = 80;
constexpr double reference_attend_cost = 55;
constexpr std::int64_t most_rows_per_step = 8;
constexpr std::size_t most_complaints = 10;

std::int64_t visible_pages(std::int64_t position) { return position / page_size + 1; }

/// A one-row batch: the row as a prefill of one token.
struct RowBatch {
  std::int32_t seq_len, cu_seqlens_q[2], context_len;
  std::span<const std::int32_t> pages;

  RowBatch(std::int64_t position, std::span<const std::int32_t> table)
      : seq_len(static_cast<std::int32_t>(position + 1)),
        cu_seqlens_q{0, 1},
        context_len(static_cast<std::int32_t>(position)),
        pages(table) {}

  BatchMetadata metadata() const {
    BatchMetadata b;
    const auto columns = static_cast<std::int64_t>(pages.size());
    b.seq_lens = ConstTensor::dense(&seq_len, DType::i32, {1});
    b.block_table = ConstTensor::dense(pages.data(), DType::i32, {1, columns});
    b.cu_seqlens_q = ConstTensor::dense(cu_seqlens_q, DType::i32, {2});
    b.context_lens = ConstTensor::dense(&context_len, DType::i32, {1});
    b.num_prefills = 1;
    b.num_actual_tokens = 1;
    b.max_query_len = 1;
    b.max_seq_len = seq_len;
    return b;
  }
};

/// Distance between neighbours of the format around `x`.
double ulp(DType type, double x) {
  const FloatFormat& f = format_of(type);
  const int exponent = x == 0 ? f.min_exponent() : std::max(std::ilogb(x), f.min_exponent());
  return std::ldexp(1.0, exponent - f.mantissa_bits);
}

/// Compares `heads · 128` stored elements with f64 values. `rotated`: elements i and i + 32 below
/// 64 are a pair whose norm bounds the error, too.
struct RowCheck {
  ErrorShare& share;
  std::string& detail;
  bool ok = true;

  /// Words on the first value that is wrong.
  void see(const char* name, std::int64_t h, std::int64_t d, double stored, double wanted) {
    if (ok) {
      detail = fmt::format("write_cache: {}, head {}, element {} is {}, not {}", name, h, d, stored,
                           wanted);
    }
    ok = false;
  }
  void compare(const char* name, const ConstTensor& stored, const double* wanted,
               std::int64_t heads, double scale, bool rotated) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const std::int64_t at = h * stored.stride[0] + d * stored.stride[1];
        const double* head = wanted + h * head_dim;
        const double largest = format_of(stored.dtype).largest;  // fp8 saturates there
        const double exact = std::clamp(head[d] / scale, -largest, largest);
        double allowed = ulp(stored.dtype, exact);
        if (rotated) {
          const double pair =
              d < 64 ? std::hypot(head[d % 32], head[d % 32 + 32]) : std::fabs(head[d]);
          allowed = std::max(allowed, rotated_pair * pair / scale);
        }
        const double value = load(stored.dtype, stored.data, at);
        const double error = std::fabs(value - exact);
        share.see(error, allowed);
        if (!(error <= allowed)) see(name, h, d, value, exact);
      }
    }
  }
  void compare_exactly(const char* name, const ConstTensor& stored, const double* wanted,
                       std::int64_t heads) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const std::int64_t at = h * stored.stride[0] + d * stored.stride[1];
        const double value = load(stored.dtype, stored.data, at);
        if (value == wanted[h * head_dim + d]) continue;
        see(name, h, d, value, wanted[h * head_dim + d]);
        share.worst = std::numeric_limits<double>::infinity();
      }
    }
  }
};

/// The [heads, 128] elements at one token of a [pages, heads, 128 tokens, 128] cache half.
ConstTensor at_slot(const ConstTensor& cache, std::int32_t page, std::int64_t offset) {
  const ConstTensor token = cache.narrow(0, page, 1).narrow(2, offset, 1);
  return {token.data, token.dtype, {token.shape[1], head_dim}, {token.stride[1], token.stride[3]}};
}

ConstTensor at_row(const ConstTensor& rows, std::int64_t token) {
  const ConstTensor row = rows.narrow(0, token, 1);
  return {row.data, row.dtype, {row.shape[1], row.shape[2]}, {row.stride[1], row.stride[2]}};
}

bool check_write(const StepItem& item, std::int64_t position, std::int64_t token,
                 const StepTensors& t, ErrorShare& share, std::string& detail) {
  WriteCacheArgs args = t.write;
  args.qkv = args.qkv.narrow(0, token, 1);
  args.positions = ConstTensor::dense(&position, DType::i64, {1});
  args.num_tokens = 1;
  const reference::WriteResult wanted = reference::write_cache(args);
  const auto page = static_cast<std::size_t>(position / page_size);
  const std::int64_t offset = position % page_size;
  const ConstKVCache cache = t.write.kv_cache;
  const ConstTensor k = at_slot(cache.k_view(), item.pages[page], offset);
  const ConstTensor v = at_slot(cache.v_view(), item.pages[page], offset);
  const ConstTensor& index = t.write.index_cache;
  const ConstTensor index_slot = index.narrow(0, item.index_pages[page], 1).narrow(1, offset, 1);
  const ConstTensor index_k(index_slot.data, index.dtype, {1, head_dim}, {0, index.stride[2]});
  const std::int64_t kv_heads = k.shape[0];

  RowCheck check{share, detail};
  const ConstTensor q = at_row(t.write.q_out, token), index_q = at_row(t.write.index_q_out, token);
  check.compare("q", q, wanted.q.data(), q.shape[0], 1, true);
  check.compare("index_q", index_q, wanted.index_q.data(), index_q.shape[0], 1, true);
  check.compare("k", k, wanted.k.data(), kv_heads, t.k_scale.value, true);
  check.compare("index_k", index_k, wanted.index_k.data(), 1, 1, true);
  if (is_fp8(v.dtype)) {
    check.compare("v", v, wanted.v.data(), kv_heads, t.v_scale.value, false);
  } else {
    check.compare_exactly("v", v, wanted.v.data(), kv_heads);
  }
  return check.ok;
}

/// One list of chosen ids against f64 scores of one row and index head.
bool check_ids(const std::vector<double>& scores, const std::vector<std::int32_t>& wanted,
               const std::vector<std::int32_t>& chosen, const SelectRule& rule, ErrorShare& share) {
  const auto valid = static_cast<std::int32_t>(scores.size());
  const std::set<std::int32_t> ids(chosen.begin(), chosen.end()),
      best(wanted.begin(), wanted.end());
  if (ids.size() != chosen.size() || ids.size() != best.size() || *ids.begin() < 0 ||
      *ids.rbegin() >= valid || !std::is_sorted(chosen.begin(), chosen.end())) {
    return false;
  }
  const auto forced = [&](std::int32_t id) {
    return id >= valid - rule.local_blocks || id < rule.init_blocks;
  };
  double lowest_chosen = std::numeric_limits<double>::infinity(), highest_missed = -lowest_chosen;
  bool ok = true;
  for (const std::int32_t id : ids) {
    if (!best.contains(id)) lowest_chosen = std::min(lowest_chosen, scores[id]);
  }
  for (const std::int32_t id : best) {
    if (ids.contains(id)) continue;
    ok = ok && !forced(id);
    highest_missed = std::max(highest_missed, scores[id]);
  }
  if (ids == best) return true;
  share.see(std::max(highest_missed - lowest_chosen, 0.0), 2 * score_abs);
  return ok && highest_missed - lowest_chosen <= 2 * score_abs;
}

// Multiply-adds that are worth waking other threads for: some milliseconds.
constexpr std::int64_t least_shared_work = std::int64_t{1} << 22;

template <class Body>
void for_each_task(std::int64_t tasks, std::int64_t work, Body&& body) {
  if (work >= least_shared_work) {
    cpu::parallel_for(tasks, body);
  } else {
    for (std::int64_t task = 0; task < tasks; ++task) body(task);
  }
}

/// f64 scores `[heads, blocks]` of one row. A block's depend on its keys alone: pieces of the
/// table are tasks.
std::vector<double> scores_of(const StepItem& item, std::int64_t position, std::int64_t token,
                              const StepTensors& t) {
  constexpr std::int64_t piece = 8;  // blocks
  const std::int64_t heads = t.selection.shape[1], valid = visible_pages(position);
  std::vector<double> scores(static_cast<std::size_t>(heads * valid));
  const std::int64_t work = heads * valid * page_size * head_dim;
  for_each_task((valid + piece - 1) / piece, work, [&](std::int64_t task) {
    const std::int64_t first = task * piece, blocks = std::min(piece, valid - first);
    const std::int64_t last = std::min(position - first * page_size, blocks * page_size - 1);
    const RowBatch batch(last, item.index_pages.subspan(static_cast<std::size_t>(first),
                                                        static_cast<std::size_t>(blocks)));
    IndexScoresArgs args;
    args.index_q = ConstTensor(t.write.index_q_out).narrow(0, token, 1);
    args.index_cache = t.write.index_cache;
    args.batch = batch.metadata();
    args.scores = Tensor::dense(nullptr, DType::f32, {heads, blocks, 1});
    const std::vector<double> part = reference::index_scores(args);
    for (std::int64_t h = 0; h < heads; ++h) {
      std::copy_n(part.begin() + h * blocks, blocks, scores.begin() + h * valid + first);
    }
  });
  return scores;
}

bool check_selection(const StepItem& item, std::int64_t position, std::int64_t token,
                     const StepTensors& t, ErrorShare& share, std::string& detail) {
  const std::int64_t heads = t.selection.shape[1], topk = t.selection.shape[2];
  const std::int64_t valid = visible_pages(position);
  const std::vector<double> scores = scores_of(item, position, token, t);
  const std::vector<std::int32_t> wanted = reference::select_blocks(
      scores, heads, valid, 1, {static_cast<std::int32_t>(valid)}, topk, t.rule);
  bool ok = true;
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto* row =
        t.selection.ptr<std::int32_t>() + token * t.selection.stride[0] + h * t.selection.stride[1];
    const auto count = static_cast<std::ptrdiff_t>(std::min(topk, valid));
    const auto list = wanted.begin() + h * topk;
    const bool ended =
        std::all_of(row + count, row + topk, [](std::int32_t id) { return id == -1; });
    if (check_ids({scores.begin() + h * valid, scores.begin() + (h + 1) * valid},
                  {list, list + count}, {row, row + count}, t.rule, share) &&
        ended) {
      continue;
    }
    if (ok) {
      detail = fmt::format("index_blocks: list {} is [{}], not [{}]", h,
                           fmt::join(row, row + topk, " "), fmt::join(list, list + count, " "));
    }
    ok = false;
  }
  return ok;
}

/// f64 attention of one row over the ids that were selected. Heads know nothing of each other: a
/// few of one KV head are a task.
reference::AttendResult attend_row(const StepItem& item, std::int64_t position, std::int64_t token,
                                   const StepTensors& t) {
  const RowBatch batch(position, item.pages);
  const ConstTensor q = ConstTensor(t.write.q_out).narrow(0, token, 1);
  const Tensor out = t.out.narrow(0, token, 1);
  const ConstTensor selection = ConstTensor(t.selection).narrow(0, token, 1);
  const Tensor& cache = t.write.kv_cache.packed;
  const std::int64_t heads = q.shape[1], kv_heads = cache.shape[1];
  const std::int64_t lists = selection.shape[1], topk = selection.shape[2];
  const std::int64_t group = heads / kv_heads;
  const std::int64_t piece = std::min<std::int64_t>(group, 4);  // query heads
  const std::int64_t pieces = (group + piece - 1) / piece;      // of a KV head
  reference::AttendResult wanted;
  wanted.out.resize(static_cast<std::size_t>(heads * head_dim));
  wanted.lse.resize(static_cast<std::size_t>(heads));
  const std::int64_t work =
      2 * heads * head_dim * page_size * std::min(topk, visible_pages(position));
  for_each_task(kv_heads * pieces, work, [&](std::int64_t task) {
    const std::int64_t kv_head = task / pieces, within = task % pieces * piece;
    const std::int64_t first = kv_head * group + within, count = std::min(piece, group - within);
    AttendArgs args;
    args.q = q.narrow(1, first, count);
    args.kv_cache = cache.narrow(1, kv_head, 1);
    args.selection = selection.narrow(1, lists == 1 ? 0 : kv_head, 1);
    args.batch = batch.metadata();
    args.out = out.narrow(1, first, count);
    args.k_scale = t.k_scale;
    args.v_scale = t.v_scale;
    const reference::AttendResult part = reference::attend(args);
    std::ranges::copy(part.out, wanted.out.begin() + first * head_dim);
    std::ranges::copy(part.lse, wanted.lse.begin() + first);
  });
  return wanted;
}

bool check_attend(const StepItem& item, std::int64_t position, std::int64_t token,
                  const StepTensors& t, VerifierReport& report, std::string& detail) {
  const reference::AttendResult wanted = attend_row(item, position, token, t);
  const ConstTensor out = at_row(t.out, token);
  double largest = 0, sum = 0, squares = 0, norm = 0;
  std::int64_t worst = 0;  // element
  for (std::int64_t h = 0; h < out.shape[0]; ++h) {
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const double exact = wanted.out[static_cast<std::size_t>(h * head_dim + d)];
      const double error =
          std::fabs(load(out.dtype, out.data, h * out.stride[0] + d * out.stride[1]) - exact);
      if (std::isnan(error) ? !std::isnan(largest) : error > largest) {  // a NaN stays
        largest = error;
        worst = h * head_dim + d;
      }
      sum += error;  // a NaN sticks to the sums
      squares += error * error;
      norm += exact * exact;
    }
  }
  const double mean = sum / static_cast<double>(wanted.out.size());
  const double relative = std::sqrt(squares / norm);
  report.worst_abs_error = std::max(report.worst_abs_error, largest);
  report.attend_max.see(largest, attend_max_abs);
  report.attend_l2.see(relative, attend_relative_l2);
  bool ok = largest <= attend_max_abs && relative <= attend_relative_l2;
  // The own block is always chosen.
  const std::int64_t others = std::min(visible_pages(position), t.selection.shape[2]) - 1;
  if (others * page_size + position % page_size + 1 >= attend_mean_keys) {
    report.attend_mean.see(mean, attend_mean_abs);
    ok = ok && mean <= attend_mean_abs;
  }
  if (!ok) {
    const std::int64_t head = worst / head_dim, element = worst % head_dim;
    detail = fmt::format(
        "attend: head {}, element {} is {}, not {}; mean error {:.2g}, relative L2 {:.2g}", head,
        element, load(out.dtype, out.data, head * out.stride[0] + element * out.stride[1]),
        wanted.out[static_cast<std::size_t>(worst)], mean, relative);
  }
  for (std::int64_t h = 0; t.lse.given() && h < out.shape[0]; ++h) {
    const double exact = wanted.lse[static_cast<std::size_t>(h)];
    const double value =
        load(DType::f32, t.lse.data, token * t.lse.stride[0] + h * t.lse.stride[1]);
    const double error = std::fabs(value - exact),
                 allowed = lse_abs + lse_relative * std::fabs(exact);
    report.lse.see(error, allowed);
    if (error <= allowed) continue;
    if (ok) detail = fmt::format("attend: LSE of head {} is {}, not {}", h, value, exact);
    ok = false;
  }
  return ok;
}

}  // namespace

void ErrorShare::see(double error, double allowed) {
  const double share = error / allowed;
  // Not a number is no agreement.
  worst = std::isnan(share) ? std::numeric_limits<double>::infinity() : std::max(worst, share);
}

double VerifierReport::worst_share() const {
  return std::max({write.worst, selection.worst, attend_max.worst, attend_mean.worst,
                   attend_l2.worst, lse.worst});
}

Verifier::Pick Verifier::pick(const StepPlan& plan, std::uint64_t bits) const {
  // A request first, then one of its rows: else long prompts would be all that is looked at.
  Pick pick;
  pick.item = below(bits, plan.items.size());
  for (std::size_t i = 0; i < pick.item; ++i) pick.token += plan.items[i].query_len;
  const auto rows = static_cast<std::uint64_t>(plan.items[pick.item].query_len);
  pick.row = static_cast<std::int64_t>(below(mix(bits), rows));
  pick.token += pick.row;
  return pick;
}

void Verifier::check(const StepPlan& plan, const StepTensors& tensors) {
  const LayerShape shape{tensors.out.shape[1], tensors.write.kv_cache.shape_view().shape[1],
                         tensors.selection.shape[1]};
  for (const StepItem& item : plan.items) {
    const Work work = item_work(shape, item);
    credit_ += config_.share * (work.index + work.attend);
  }
  const bool counted = config_.rows_per_step > 0;
  const std::int64_t most =
      counted ? std::min(config_.rows_per_step, plan.tokens()) : most_rows_per_step;
  for (std::int64_t i = 0; i < most && (counted || credit_ > 0); ++i) {
    const Pick p = pick(plan, mix(config_.seed, 9, ++draws_));
    const StepItem& item = plan.items[p.item];
    check_row(item, p.row, p.token, tensors);
    const Work work = rows_work(shape, item.first_position + p.row, 1);
    credit_ -= reference_index_cost * work.index + reference_attend_cost * work.attend;
  }
}

bool Verifier::check_row(const StepItem& item, std::int64_t row, std::int64_t token,
                         const StepTensors& t) {
  if (t.fetch) t.fetch(item, token);
  const std::int64_t position = item.first_position + row;
  std::string details[3];
  const bool write = check_write(item, position, token, t, report_.write, details[0]);
  const bool selection = check_selection(item, position, token, t, report_.selection, details[1]);
  const bool attend = check_attend(item, position, token, t, report_, details[2]);
  ++report_.rows;
  if (write && selection && attend) return true;
  ++report_.wrong;
  if (report_.complaints.size() < most_complaints) {
    std::string complaint =
        fmt::format("request {}, position {}, {}: wrong{}{}{}", item.request, position,
                    item.decode ? "decode" : "prefill", write ? "" : " write_cache",
                    selection ? "" : " index_blocks", attend ? "" : " attend");
    for (const std::string& detail : details) {
      if (!detail.empty()) complaint += "; " + detail;
    }
    report_.complaints.push_back(std::move(complaint));
  }
  return false;
}

}  // namespace msa::replay
