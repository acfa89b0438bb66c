// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <functional>

/// \file
/// Times of captured calls.

namespace msa::bench {

/// Microseconds a call, over replays of a graph.
struct GraphTime {
  double median = 0, fastest = 0, slowest = 0;
};

/// How the calls of a graph follow each other.
enum class Edges {
  full,       // a call starts when the one before has ended, its own kernels follow as captured
  dependent,  // as captured: a dependent launch sets itself up while the one before ends
};

/// Captures `calls` calls of run(i), i = 0, 1, …, in one graph and times `replays` replays of it.
/// What `before(replay)` puts on the stream ends before a replay's time begins; long enough, it
/// also keeps the host's part of a graph's launch out of that time.
GraphTime time_graph(
    cudaStream_t stream, int calls, int replays, Edges edges, const std::function<void(int)>& run,
    const std::function<void(int)>& before = [](int) {});

}  // namespace msa::bench
