// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/place.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <optional>

#include "api/dispatch.h"
#include "cli/system_info.h"
#ifdef MSA_HAS_CUDA
#include "cuda/place/place.h"
#include "cuda/place/rates.h"
#endif

namespace msa::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

class HostRecording final : public Recording {
 public:
  explicit HostRecording(std::function<void()> calls) : calls_(std::move(calls)) {}
  double run() override {
    const Clock::time_point start = Clock::now();
    calls_();
    return seconds(Clock::now() - start);
  }

 private:
  std::function<void()> calls_;
};

class HostPlace final : public Place {
 public:
  Device device() const override { return {}; }
  Stream stream() const override { return {}; }
  std::string description() const override { return machine_info().cpu; }
  std::size_t available_bytes() const override {
    return static_cast<std::size_t>(std::max<std::int64_t>(machine_info().available, 0));
  }

  void* allocate(std::size_t bytes) override {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: its refusal changes nothing
    return memory;
  }
  void free(void* memory, std::size_t bytes) noexcept override { munmap(memory, bytes); }

  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void set(void* to, unsigned char byte, std::size_t bytes) override {
    if (bytes > 0) std::memset(to, byte, bytes);
  }

  void synchronize() override {}
  void mark(std::size_t number) override { marks_.at(number) = Clock::now(); }
  double seconds_between(std::size_t from, std::size_t to) override {
    return seconds(marks_.at(to) - marks_.at(from));
  }
  std::unique_ptr<Recording> record(std::function<void()> calls) override {
    return std::make_unique<HostRecording>(std::move(calls));
  }

 private:
  std::array<Clock::time_point, max_marks> marks_{};
};

constexpr const char* allowed_devices = "auto, cpu, cuda, or cuda:N with N from 0";

[[noreturn]] void refuse(const std::string& command, const std::string& device,
                         const std::vector<std::string>& reasons) {
  std::vector<std::string> failures;
  failures.reserve(reasons.size());
  for (const std::string& reason : reasons) {
    failures.push_back(fmt::format("{}: argument '--device' is '{}': {}", command, device, reason));
  }
  throw Error(ErrorCode::unsupported, std::move(failures));
}

/// Backends that calls of the command may use and that take tensors of a device.
std::vector<const Backend*> device_backends(const std::string& backend) {
  std::vector<const Backend*> found;
  const auto consider = [&](const Backend* candidate) {
    const std::string name = candidate->name();
    if (name != "cpu" && (backend.empty() || backend == name)) found.push_back(candidate);
  };
  if (backend.empty()) {
    for (const Backend* candidate : eligible_backends()) consider(candidate);
  } else {
    for (const Backend* candidate : registered_backends()) consider(candidate);
  }
  return found;
}

/// Why no backend takes tensors of any device; empty where one does.
Reasons no_device_backend(const std::string& backend) {
  const std::vector<const Backend*> candidates = device_backends(backend);
  if (candidates.empty()) {
    return {"no backend of this build that the call may use takes tensors of a device"};
  }
  Reasons reasons;
  for (const Backend* candidate : candidates) {
    const Reasons off = candidate->unavailable();
    if (off.empty()) return {};
    for (const std::string& reason : off) {
      reasons.push_back(fmt::format("backend {} is off: {}", candidate->name(), reason));
    }
  }
  return reasons;
}

/// N of "cuda:N"; −1 for "cuda", nothing for anything else.
std::optional<int> cuda_index(const std::string& device) {
  if (device == "cuda") return -1;
  if (device.rfind("cuda:", 0) != 0) return std::nullopt;
  int index = 0;
  const char* const end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(device.data() + 5, end, index);
  return error == std::errc() && stop == end && index >= 0 ? std::optional(index) : std::nullopt;
}

/// `index`: −1 for the first that can be used.
std::unique_ptr<Place> cuda_place([[maybe_unused]] const std::string& command,
                                  [[maybe_unused]] const std::string& device,
                                  [[maybe_unused]] int index) {
#ifdef MSA_HAS_CUDA
  const int chosen = index < 0 ? cuda::first_place() : index;
  const Reasons reasons = cuda::place_reasons(chosen);
  if (!reasons.empty()) refuse(command, device, reasons);
  return cuda::make_place(chosen);
#else
  return nullptr;  // no backend of such a build takes a device's tensors: refused before
#endif
}

}  // namespace

Place& host_place() {
  static HostPlace place;
  return place;
}

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device,
                 "Where to run: cpu, cuda, cuda:N, or auto: the first CUDA device that can be "
                 "used, else the CPU")
      ->type_name("NAME")
      ->capture_default_str();
}

std::unique_ptr<Place> choose_place(const std::string& command, const std::string& device,
                                    const std::string& backend) {
  const std::optional<int> index = cuda_index(device);
  if (!index && device != "cpu" && device != "auto") {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: argument '--device' is '{}'; allowed: {}", command, device,
                            allowed_devices));
  }
  if (device == "cpu" && !backend.empty() && backend != "cpu") {
    refuse(command, device, {fmt::format("backend {} takes tensors of a device only", backend)});
  }
  const bool any = device == "auto" && (backend.empty() || backend == "cpu");
  if (device == "cpu" || (any && !no_device_backend(backend).empty())) {
    return std::make_unique<HostPlace>();
  }
  const Reasons reasons = no_device_backend(backend);
  if (!reasons.empty()) refuse(command, device, reasons);
  return cuda_place(command, device, index.value_or(-1));
}

std::string device_name(const Place& place) {
  if (place.is_host()) return "cpu";
  return fmt::format("cuda:{}", place.device().index);
}

double memory_rate([[maybe_unused]] Place& place, [[maybe_unused]] void* memory,
                   [[maybe_unused]] std::size_t bytes) {
  double best = 0;
#ifdef MSA_HAS_CUDA
  constexpr std::size_t least = std::size_t{256} << 20;  // several times an L2 cache
  if (place.device().type != DeviceType::cuda || bytes < least) return best;
  for (const cuda::MemoryRate& rate : cuda::measure_rates(place, memory, bytes).memory) {
    best = std::max(best, rate.bytes_per_second);
  }
#endif
  return best;
}

PlacedBuffer::PlacedBuffer(Place& place, std::size_t bytes) : place_(&place), bytes_(bytes) {
  if (bytes == 0) return;
  data_ = place.allocate(bytes);
  try {
    host_ = place.is_host() ? data_ : host_place().allocate(bytes);
  } catch (...) {
    place.free(data_, bytes);
    throw;
  }
}

PlacedBuffer::~PlacedBuffer() {
  if (bytes_ == 0) return;
  if (pinned_) place_->unpin(host_);
  place_->free(data_, bytes_);
  if (host_ != data_) host_place().free(host_, bytes_);
}

Tensor PlacedBuffer::view(DType dtype, std::initializer_list<std::int64_t> shape) const {
  return Tensor::dense(data_, dtype, shape, place_ == nullptr ? Device{} : place_->device());
}

Tensor PlacedBuffer::host_view(DType dtype, std::initializer_list<std::int64_t> shape) const {
  return Tensor::dense(host_, dtype, shape);
}

void PlacedBuffer::upload(std::size_t offset, std::size_t bytes) const {
  if (host_ == data_ || bytes == 0) return;
  place_->upload(static_cast<char*>(data_) + offset, host_as<char>() + offset, bytes);
  if (pinned_) place_->synchronize();  // the caller goes on to change it
}

void PlacedBuffer::download(std::size_t offset, std::size_t bytes) const {
  if (host_ == data_ || bytes == 0) return;
  place_->download(host_as<char>() + offset, static_cast<char*>(data_) + offset, bytes);
}

}  // namespace msa::cli
