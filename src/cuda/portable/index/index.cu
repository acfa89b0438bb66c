// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/device.h"
#include "cuda/common/devices.h"
#include "cuda/common/index/operators.h"
#include "cuda/portable/index/launch.h"
#include "cuda/portable/operators.h"

namespace msa::cuda::portable {
namespace index {
namespace {

/// What index_blocks and index_scores share.
template <class Args>
ScoreParams common_params(const Args& a) {
  ScoreParams p{};
  fill_params(p, a);
  p.keys = a.index_cache.template ptr<char>();
  p.key_page = step_bytes(a.index_cache, 0);
  p.key_token = step_bytes(a.index_cache, 1);
  p.keys_aligned = aligned_rows(a.index_cache);
  return p;
}

/// Whether e4m3 is multiplied as it is: SM90 widens both sides of each product, which takes longer
/// than to widen keys alone; what the PTX becomes on later devices without it is not known.
bool has_e4m3_products(int device) {
  static DeviceNotes<bool> notes;
  const auto find = [](int asked) {
    const int found = capability(asked);
    return found == 89 || found >= 120;
  };
  return device < max_devices ? notes.of(device, find) : find(device);
}

/// The kernel of a call's types.
template <class Args>
void launch_scores(const Args& a, const ScoreParams& p, Output output, const Origin& origin) {
  if (a.index_cache.dtype == DType::bf16) {
    return p.q_type == DType::f16 ? launch_split(p, output, origin)
                                  : launch_bf16(p, output, origin);
  }
  if (p.q_type == DType::e4m3 && !a.exact && has_e4m3_products(origin.device)) {
    return launch_e4m3(p, output, origin);
  }
  launch_widened(p, output, origin);
}

}  // namespace
}  // namespace index

std::size_t workspace_size(const IndexArgs& args) { return ScoreLayout(args).bytes(); }

void index_blocks(const IndexArgs& args) {
  const Origin origin = {"index_blocks", args.index_q.device.index, args.stream};
  index_blocks_by(args, index::common_params(args), origin,
                  [&](const index::ScoreParams& p, Output output) {
                    index::launch_scores(args, p, output, origin);
                  });
}

void index_scores(const IndexScoresArgs& args) {
  const Origin origin = {"index_scores", args.index_q.device.index, args.stream};
  index_scores_by(args, index::common_params(args), origin,
                  [&](const index::ScoreParams& p, Output output) {
                    index::launch_scores(args, p, output, origin);
                  });
}

void select_blocks(const SelectArgs& args) { select_blocks_by_warps(args); }

}  // namespace msa::cuda::portable
