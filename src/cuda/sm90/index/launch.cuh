// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "cuda/common/launch.h"
#include "cuda/sm90/common/devices.h"
#include "cuda/sm90/index/kernel.cuh"
#include "cuda/sm90/index/launch.h"

/// \file
/// Host side of the score kernel for one kind of keys.

namespace msa::cuda::sm90::index {

/// Lets the kernel use its shared memory; returns the device's SMs.
template <class Keys, int n, bool keeps_lists>
int prepare(int device) {
  check(cudaFuncSetAttribute(score_kernel<Keys, n, keeps_lists>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(Team<n>::shared_bytes)),
        "index_blocks", "cudaFuncSetAttribute");
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "index_blocks",
        "cudaDeviceGetAttribute");
  return sms;
}

template <class Keys, int n, bool keeps_lists>
void launch_columns(const ScoreParams& params, int device, Stream stream) {
  static DeviceNotes<int> sms;
  const int ctas = sms.of(device, prepare<Keys, n, keeps_lists>) * Team<n>::ctas;
  ScoreParams p = params;
  constexpr std::size_t extra = keeps_lists ? ListSink<n>::bytes : 0;
  p.slots = slots_beside<Keys, n>(extra);
  launch_dependent("index_blocks", score_kernel<Keys, n, keeps_lists>,
                   keeps_lists ? std::min<std::int64_t>(p.window.tokens, ctas) : ctas,
                   Team<n>::threads, dynamic_bytes<Keys, n>(p.slots, extra), stream, p);
}

template <class Keys>
void launch_keys(const ScoreParams& p, Output output, int device, Stream stream) {
  if (output == Output::lists) {
    return p.heads <= 8 ? launch_columns<Keys, 8, true>(p, device, stream)
                        : launch_columns<Keys, 16, true>(p, device, stream);
  }
  const auto rows =
      static_cast<int>(p.window.decode ? p.batch.decode_query_len : 1 << p.tile_tokens_log2);
  switch (padded_columns(rows * p.heads)) {
    case 8:
      return launch_columns<Keys, 8, false>(p, device, stream);
    case 16:
      return launch_columns<Keys, 16, false>(p, device, stream);
    case 32:
      return launch_columns<Keys, 32, false>(p, device, stream);
    case 64:
      return launch_columns<Keys, 64, false>(p, device, stream);
    case 128:
      return launch_columns<Keys, 128, false>(p, device, stream);
    default:
      return launch_columns<Keys, 256, false>(p, device, stream);
  }
}

}  // namespace msa::cuda::sm90::index
