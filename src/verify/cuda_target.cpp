// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/cuda_target.h"

#include <cuda_runtime.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "cuda/common/device.h"
#include "msa/device.h"

/// \file
/// A CUDA device as a target. Everything goes through one stream of its own, so that a call that
/// ran on another one would be found out.

namespace msa::verify {
namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

class CudaMemory final : public Memory {
 public:
  CudaMemory() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }

  bool host_visible() const override { return false; }
  void* allocate(std::size_t bytes) override {
    void* pointer = nullptr;
    check(cudaMalloc(&pointer, bytes), "cudaMalloc");
    return pointer;
  }
  // Destructors end here: an error shows up in the next call.
  void free(void* pointer) override { cudaFree(pointer); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  cudaStream_t stream() const { return stream_; }
  /// Captures the calls in a graph. Strict capture: a call that waits, allocates or touches
  /// another stream fails.
  cudaGraphExec_t capture(const std::function<void()>& calls) const {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      calls();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return exec;
  }
  void launch(cudaGraphExec_t exec) const {
    check(cudaGraphLaunch(exec, stream_), "cudaGraphLaunch");
    synchronize();
  }
  void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
    synchronize();
  }

  cudaStream_t stream_ = nullptr;
};

CudaMemory& memory() {
  static CudaMemory instance;
  return instance;
}

}  // namespace

void add_cuda_targets(std::vector<Target>& targets) {
  for (const BackendInfo& backend : backends()) {
    if (backend.name == "cpu" || !backend.reasons.empty()) continue;
    // The backend serves some device of the machine, perhaps another one than the targets'.
    if (backend.name == "sm90" && cuda::capability(0) != 90) continue;
    Target t;
    t.name = "cuda-" + std::string(backend.name);
    t.backend = backend.name;
    t.device = {DeviceType::cuda, 0};
    t.memory = &memory();
    t.stream = {memory().stream()};
    // A backend without a kernel for some calls leaves them to those behind it.
    const bool complete = t.backend == "portable";
    t.activate = [complete] {
      if (complete) {
        setenv("MSA_BACKEND", "portable", 1);
      } else {
        unsetenv("MSA_BACKEND");
      }
    };
    t.synchronize = [] { memory().synchronize(); };
    targets.push_back(t);
    t.name += "-graph";
    t.submit = [](const std::function<void()>& calls) {
      const cudaGraphExec_t exec = memory().capture(calls);
      memory().launch(exec);
      check(cudaGraphExecDestroy(exec), "cudaGraphExecDestroy");
    };
    targets.push_back(std::move(t));
  }
}

Target replaying(const Target& target) {
  Target t = target;
  t.submit = [exec = cudaGraphExec_t{}](const std::function<void()>& calls) mutable {
    if (exec == nullptr) exec = memory().capture(calls);
    memory().launch(exec);
  };
  return t;
}

}  // namespace msa::verify
