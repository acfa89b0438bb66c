// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "common/step.h"
#include "cpu/operators.h"
#include "cpu/parallel.h"

namespace msa::cpu {
namespace {

/// How the elements of one page lie: up to three loops around runs that are contiguous on both
/// sides. All in bytes.
struct PagePlan {
  struct Loop {
    std::int64_t count = 1;
    std::int64_t src_step = 0;
    std::int64_t dst_step = 0;
  };
  std::array<Loop, 3> loops;  // outermost first
  std::int64_t run = 0;
};

/// Grows the run from the innermost dimension outwards while both sides stay contiguous.
PagePlan plan_page(const ConstTensor& src, const Tensor& dst) {
  PagePlan plan;
  plan.run = static_cast<std::int64_t>(size_of(src.dtype));
  int level = 2;
  bool contiguous = true;
  for (int i = src.rank - 1; i >= 1; --i) {
    if (src.shape[i] == 1) continue;
    const std::int64_t src_step = step_bytes(src, i), dst_step = step_bytes(dst, i);
    if (contiguous && src_step == plan.run && dst_step == plan.run) {
      plan.run *= src.shape[i];
      continue;
    }
    contiguous = false;
    plan.loops[level--] = {src.shape[i], src_step, dst_step};
  }
  return plan;
}

/// One step of the outermost loop.
void copy_part(const PagePlan& plan, const char* src, char* dst, std::int64_t outer) {
  const auto& [a, b, c] = plan.loops;
  for (std::int64_t j = 0; j < b.count; ++j) {
    const char* from = src + outer * a.src_step + j * b.src_step;
    char* to = dst + outer * a.dst_step + j * b.dst_step;
    for (std::int64_t k = 0; k < c.count; ++k) {
      std::memmove(to + k * c.dst_step, from + k * c.src_step, static_cast<std::size_t>(plan.run));
    }
  }
}

}  // namespace

void copy_pages(const CopyPagesArgs& args) {
  if (args.pairs.shape[0] == 0 || args.src.numel() == 0 || args.dst.numel() == 0) return;
  PagePlan plan = plan_page(args.src, args.dst);
  // Tasks are (pair, step of the outermost loop that exists).
  for (int i = 0; i < 2 && plan.loops[0].count == 1; ++i) {
    plan.loops = {plan.loops[1], plan.loops[2], PagePlan::Loop{}};
  }
  const auto element = static_cast<std::int64_t>(size_of(args.src.dtype));
  const std::int64_t parts = plan.loops[0].count;
  parallel_for(args.pairs.shape[0] * parts, [&](std::int64_t task) {
    const auto* pair = args.pairs.ptr<std::int64_t>() + task / parts * args.pairs.stride[0];
    const std::int64_t from = pair[0], to = pair[args.pairs.stride[1]];
    const bool inside = from >= 0 && from < args.src.shape[0] && to >= 0 && to < args.dst.shape[0];
    if (!inside) return;
    copy_part(plan, args.src.ptr<char>() + from * args.src.stride[0] * element,
              args.dst.ptr<char>() + to * args.dst.stride[0] * element, task % parts);
  });
}

}  // namespace msa::cpu
