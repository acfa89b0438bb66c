// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "graph_timer.h"

#include <algorithm>
#include <set>
#include <vector>

#include "cuda/common/launch.h"

namespace msa::bench {
namespace {

using cuda::check;

/// Adds what the next call of a capture will wait for to the ends of calls.
void add_ends(cudaStream_t stream, std::set<cudaGraphNode_t>& ends) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count),
        "bench", "cudaStreamGetCaptureInfo");
  ends.insert(nodes, nodes + count);
}

/// Programmatic edges from the end of a call become full ones; those inside a call stay.
void complete_edges(cudaGraph_t graph, const std::set<cudaGraphNode_t>& ends) {
  std::size_t count = 0;
  check(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), "bench", "cudaGraphGetEdges");
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  check(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count), "bench",
        "cudaGraphGetEdges");
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i].type != cudaGraphDependencyTypeProgrammatic || !ends.contains(from[i])) continue;
    check(cudaGraphRemoveDependencies(graph, &from[i], &to[i], &data[i], 1), "bench",
          "cudaGraphRemoveDependencies");
    const cudaGraphEdgeData full{};
    check(cudaGraphAddDependencies(graph, &from[i], &to[i], &full, 1), "bench",
          "cudaGraphAddDependencies");
  }
}

}  // namespace

GraphTime time_graph(cudaStream_t stream, int calls, int replays, Edges edges,
                     const std::function<void(int)>& run, const std::function<void(int)>& before) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "bench",
        "cudaStreamBeginCapture");
  std::set<cudaGraphNode_t> ends;
  for (int i = 0; i < calls; ++i) {
    run(i);
    add_ends(stream, ends);
  }
  check(cudaStreamEndCapture(stream, &graph), "bench", "cudaStreamEndCapture");
  if (edges == Edges::full) complete_edges(graph, ends);
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph, 0), "bench", "cudaGraphInstantiate");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "bench", "cudaEventCreate");
  check(cudaEventCreate(&end), "bench", "cudaEventCreate");
  constexpr int warm_up = 2;
  std::vector<double> times;
  for (int i = 0; i < warm_up + replays; ++i) {
    before(i);
    check(cudaEventRecord(begin, stream), "bench", "cudaEventRecord");
    check(cudaGraphLaunch(exec, stream), "bench", "cudaGraphLaunch");
    check(cudaEventRecord(end, stream), "bench", "cudaEventRecord");
    check(cudaEventSynchronize(end), "bench", "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "bench", "cudaEventElapsedTime");
    if (i >= warm_up) times.push_back(1e3 * milliseconds / calls);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

}  // namespace msa::bench
