// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cuda/common/devices.h"
#include "cuda/common/index/with_columns.h"
#include "cuda/common/launch_behind.h"
#include "cuda/portable/index/kernel.cuh"
#include "cuda/portable/index/launch.h"

/// \file
/// Host side of the score kernel for one kind of keys.

namespace msa::cuda::portable::index {

/// CTAs of a launch: as many as a device runs at once.
template <class Keys, int n, bool keeps_lists>
int prepare_columns(const Origin& origin, int device) {
  const auto kernel = score_kernel<Keys, n, keeps_lists>;
  constexpr std::size_t bytes = shared_bytes<Keys, n>(keeps_lists);
  const int sms = prepare_kernel(origin.op, kernel, bytes, device);
  int ctas = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, kernel, Team<Keys, n>::threads, bytes),
        origin.op, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return sms * std::max(ctas, 1);
}

template <class Keys, int n, bool keeps_lists>
void launch_columns(const ScoreParams& params, const Origin& origin) {
  static DeviceNotes<int> notes;
  const auto prepare = [&](int device) {
    return prepare_columns<Keys, n, keeps_lists>(origin, device);
  };
  const int ctas =
      origin.device < max_devices ? notes.of(origin.device, prepare) : prepare(origin.device);
  ScoreParams p = params;
  p.by_ctas = Divisor(static_cast<std::uint32_t>(ctas));
  launch_behind(origin.op, origin.device, score_kernel<Keys, n, keeps_lists>,
                keeps_lists ? std::min<std::int64_t>(p.window.tokens, ctas) : ctas,
                Team<Keys, n>::threads, shared_bytes<Keys, n>(keeps_lists), origin.stream, p);
}

template <class Keys>
void launch_keys(const ScoreParams& p, Output output, const Origin& origin) {
  if (output == Output::lists) return launch_columns<Keys, 16, true>(p, origin);
  const auto rows =
      static_cast<int>(p.window.decode ? p.batch.decode_query_len : 1 << p.tile_tokens_log2);
  with_columns<least_columns>(compiled_columns(rows * p.heads),
                              [&](auto n) { launch_columns<Keys, n, false>(p, origin); });
}

}  // namespace msa::cuda::portable::index
