// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/place/place.h"

#include <array>
#include <new>
#include <utility>

#include "cuda/common/device.h"
#include "cuda/common/launch.h"

namespace msa::cuda {
namespace {

constexpr const char* who = "device";  // in messages
constexpr int least_capability = 80;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Events around replays of a graph.
class GraphRecording final : public Recording {
 public:
  GraphRecording(int device, cudaStream_t stream, const std::function<void()>& calls)
      : device_(device), stream_(stream) {
    const DeviceGuard guard(who, device_);
    cudaGraph_t graph = nullptr;
    // Of this thread alone: others may go on to allocate.
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), who,
          "cudaStreamBeginCapture");
    try {
      calls();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), who, "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, who, "cudaGraphInstantiate");
    check(cudaEventCreate(&begin_), who, "cudaEventCreate");
    check(cudaEventCreate(&end_), who, "cudaEventCreate");
  }
  ~GraphRecording() override {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }

  double run() override {
    const DeviceGuard guard(who, device_);
    check(cudaEventRecord(begin_, stream_), who, "cudaEventRecord");
    check(cudaGraphLaunch(exec_, stream_), who, "cudaGraphLaunch");
    check(cudaEventRecord(end_, stream_), who, "cudaEventRecord");
    check(cudaEventSynchronize(end_), who, "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), who, "cudaEventElapsedTime");
    return 1e-3 * milliseconds;
  }

 private:
  int device_;
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class CudaPlace final : public Place {
 public:
  explicit CudaPlace(int device) : device_(device) {
    const DeviceGuard guard(who, device_);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), who,
          "cudaStreamCreateWithFlags");
    for (cudaEvent_t& event : marks_) check(cudaEventCreate(&event), who, "cudaEventCreate");
  }
  ~CudaPlace() override {
    for (cudaEvent_t event : marks_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  Device device() const override { return {DeviceType::cuda, device_}; }
  Stream stream() const override { return {stream_}; }
  std::string description() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device_), who, "cudaGetDeviceProperties");
    return std::string(properties.name) + " (cuda:" + std::to_string(device_) + ")";
  }
  std::size_t available_bytes() const override {
    const DeviceGuard guard(who, device_);
    std::size_t available = 0, all = 0;
    check(cudaMemGetInfo(&available, &all), who, "cudaMemGetInfo");
    return available;
  }

  void* allocate(std::size_t bytes) override {
    const DeviceGuard guard(who, device_);
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw std::bad_alloc();
    }
    check(status, who, "cudaMalloc");
    return memory;
  }
  void free(void* memory, std::size_t) noexcept override { cudaFree(memory); }

  bool pin(void* host, std::size_t bytes) override {
    const DeviceGuard guard(who, device_);
    if (cudaHostRegister(host, bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
    cudaGetLastError();  // a limit of locked memory: the copies are slower, and right
    return false;
  }
  void unpin(void* host) noexcept override { cudaHostUnregister(host); }

  void upload(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
    synchronize();
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void set(void* to, unsigned char byte, std::size_t bytes) override {
    const DeviceGuard guard(who, device_);
    check(cudaMemsetAsync(to, byte, bytes, stream_), who, "cudaMemsetAsync");
  }

  void synchronize() override {
    check(cudaStreamSynchronize(stream_), who, "cudaStreamSynchronize");
  }

  void mark(std::size_t number) override {
    const DeviceGuard guard(who, device_);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream_, &status), who, "cudaStreamIsCapturing");
    // Of a graph: its replays note the time.
    const unsigned flags =
        status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    check(cudaEventRecordWithFlags(marks_.at(number), stream_, flags), who,
          "cudaEventRecordWithFlags");
  }
  double seconds_between(std::size_t from, std::size_t to) override {
    check(cudaEventSynchronize(marks_.at(to)), who, "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, marks_.at(from), marks_.at(to)), who,
          "cudaEventElapsedTime");
    return 1e-3 * milliseconds;
  }

  std::unique_ptr<Recording> record(std::function<void()> calls) override {
    return std::make_unique<GraphRecording>(device_, stream_, calls);
  }

 private:
  /// Where the host's side is pageable the runtime takes it into memory of its own before it
  /// returns.
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const DeviceGuard guard(who, device_);
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_), who, "cudaMemcpyAsync");
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, max_marks> marks_{};
};

}  // namespace

Reasons place_reasons(int device) {
  Reasons none = device_reasons(least_capability, latest_capability);
  if (!none.empty()) return none;
  int count = 0;
  check(cudaGetDeviceCount(&count), who, "cudaGetDeviceCount");
  if (device < 0 || device >= count) {
    return {"there is no device " + std::to_string(device) + "; allowed on this machine: 0 to " +
            std::to_string(count - 1)};
  }
  const int has = capability(device);
  if (has >= least_capability) return {};
  return {"device " + std::to_string(device) + " has compute capability " +
          std::to_string(has / 10) + "." + std::to_string(has % 10) + "; the kernels need 8.0"};
}

int first_place() {
  if (!device_reasons(least_capability, latest_capability).empty()) return -1;
  int device = 0;
  while (!place_reasons(device).empty()) ++device;
  return device;
}

Machine machine() {
  Machine found;
  int runtime = 0, driver = 0, count = 0;
  found.compiled = version_text(CUDART_VERSION);
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) found.runtime = version_text(runtime);
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
    found.driver = version_text(driver);
  }
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) continue;
    found.gpus.push_back({properties.name, properties.major * 10 + properties.minor,
                          properties.multiProcessorCount, properties.totalGlobalMem});
  }
  cudaGetLastError();  // of a machine without a driver
  return found;
}

std::unique_ptr<Place> make_place(int device) { return std::make_unique<CudaPlace>(device); }

}  // namespace msa::cuda
