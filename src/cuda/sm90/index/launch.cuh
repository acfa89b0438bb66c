// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cuda/common/devices.h"
#include "cuda/common/index/with_columns.h"
#include "cuda/common/launch.h"
#include "cuda/sm90/index/kernel.cuh"
#include "cuda/sm90/index/launch.h"

/// \file
/// Host side of the score kernel for one kind of keys.

namespace msa::cuda::sm90::index {

template <class Keys, int n, bool keeps_lists>
void launch_columns(const ScoreParams& params, const Origin& origin) {
  const auto kernel = score_kernel<Keys, n, keeps_lists>;
  static DeviceNotes<int> sms;
  const int ctas = Team<n>::ctas * sms.of(origin.device, [&](int device) {
    return prepare_kernel(origin.op, kernel, Team<n>::shared_bytes, device);
  });
  ScoreParams p = params;
  constexpr std::size_t extra = keeps_lists ? ListSink<n>::bytes : 0;
  static_assert(slots_beside<Keys, n>(extra) >= 2, "a page comes while another is computed");
  p.slots = slots_beside<Keys, n>(extra);
  p.by_ctas = Divisor(static_cast<std::uint32_t>(ctas));
  launch_dependent(
      origin.op, kernel, keeps_lists ? std::min<std::int64_t>(p.window.tokens, ctas) : ctas,
      Team<n>::threads, std::max(dynamic_bytes<Keys, n>(p.slots, extra), Team<n>::least_bytes),
      origin.stream, p);
}

template <class Keys>
void launch_keys(const ScoreParams& p, Output output, const Origin& origin) {
  if (output == Output::lists) {
    return p.heads <= 8 ? launch_columns<Keys, 8, true>(p, origin)
                        : launch_columns<Keys, 16, true>(p, origin);
  }
  const auto rows =
      static_cast<int>(p.window.decode ? p.batch.decode_query_len : 1 << p.tile_tokens_log2);
  with_columns<8>(padded_columns(rows * p.heads),
                  [&](auto n) { launch_columns<Keys, n, false>(p, origin); });
}

}  // namespace msa::cuda::sm90::index
