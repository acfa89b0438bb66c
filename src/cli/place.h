// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/place.h"
#include "msa/tensor.h"

/// \file
/// Where a command's tensors live: `--device`, and memory there with a side that the host reads.

namespace CLI {
class App;
}

namespace msa::cli {

/// The process's own memory; calls are done when they return.
Place& host_place();

/// Adds `--device` to a command.
void add_device_option(CLI::App& app, std::string& device);

/// The place that `--device` of `command` names: "cpu"; "cuda", the first CUDA device that the
/// library can use; "cuda:N"; "auto", "cuda" where there is one and MSA_BACKEND lets calls use it,
/// else "cpu". `backend` ("": any) is one that calls must be able to use there.
/// \throws Error (unsupported) with every reason why a device cannot be used.
std::unique_ptr<Place> choose_place(const std::string& command, const std::string& device,
                                    const std::string& backend = "");

/// "cpu", "cuda:0": what `--device` names the place by.
std::string device_name(const Place& place);

/// Bytes a second that a device copies or gathers at best, measured on memory of its own that it
/// may overwrite; 0 for the host, and for memory too small to tell.
double memory_rate(Place& place, void* memory, std::size_t bytes);

/// Memory of a place, with as much on the host; one and the same where the place is the host. Host
/// pages are not touched until somebody writes, and huge where the system grants it (a cache is
/// read in 64 KB pieces at random: small pages would cost a TLB miss a few lines).
class PlacedBuffer {
 public:
  PlacedBuffer() = default;
  PlacedBuffer(Place& place, std::size_t bytes);
  PlacedBuffer(PlacedBuffer&& other) noexcept { swap(other); }
  PlacedBuffer& operator=(PlacedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PlacedBuffer();

  /// For what is copied as a whole again and again: its copies become fast where they can.
  void pin() { pinned_ = pinned_ || (host_ != data_ && bytes_ > 0 && place_->pin(host_, bytes_)); }

  void* data() const { return data_; }  ///< in the place
  void* host() const { return host_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* host_as() const {
    return static_cast<T*>(host_);
  }
  /// A dense view of the place's side, from the beginning.
  Tensor view(DType dtype, std::initializer_list<std::int64_t> shape) const;
  /// The same of the host's.
  Tensor host_view(DType dtype, std::initializer_list<std::int64_t> shape) const;
  /// The place's memory under a view of the host's, wherever in it that starts.
  template <class Pointer>
  BasicTensor<Pointer> placed(BasicTensor<Pointer> host) const {
    const std::ptrdiff_t offset = static_cast<const char*>(host.data) - host_as<char>();
    host.data = static_cast<char*>(data_) + offset;
    host.device = place_->device();
    return host;
  }

  /// Brings a range from the host to the place, or back; nothing where they are the same.
  void upload(std::size_t offset, std::size_t bytes) const;
  void upload() const { upload(0, bytes_); }
  void download(std::size_t offset, std::size_t bytes) const;
  void download() const { download(0, bytes_); }

 private:
  void swap(PlacedBuffer& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(data_, other.data_);
    std::swap(host_, other.host_);
    std::swap(bytes_, other.bytes_);
    std::swap(pinned_, other.pinned_);
  }

  Place* place_ = nullptr;
  void* data_ = nullptr;
  void* host_ = nullptr;
  std::size_t bytes_ = 0;
  bool pinned_ = false;
};

/// A vector and its copy in a place.
template <class T>
class PlacedVector {
 public:
  PlacedVector() = default;
  /// `values` in the place already.
  PlacedVector(Place& place, std::vector<T> values) : values_(std::move(values)) {
    if (place.is_host()) return;
    place_ = &place;
    copy_ = PlacedBuffer(place, bytes(values_.size()));
    upload(values_.size());
  }

  std::vector<T>& values() { return values_; }
  const std::vector<T>& values() const { return values_; }
  /// In the place.
  const T* data() const {
    return place_ == nullptr ? values_.data() : static_cast<const T*>(copy_.data());
  }
  Device device() const { return place_ == nullptr ? Device{} : place_->device(); }
  /// Brings the first `count` values to the place.
  void upload(std::size_t count) const {
    if (place_ != nullptr && count > 0) place_->upload(copy_.data(), values_.data(), bytes(count));
  }
  /// A dense view of the place's side.
  ConstTensor view(DType dtype, std::initializer_list<std::int64_t> shape) const {
    return ConstTensor::dense(data(), dtype, shape, device());
  }

 private:
  static std::size_t bytes(std::size_t count) { return count * sizeof(T); }

  std::vector<T> values_;
  PlacedBuffer copy_;  // of another place than the host
  Place* place_ = nullptr;
};

}  // namespace msa::cli
