// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cli/place.h"
#include "msa/error.h"

namespace msa::cli {

/// A place whose calls the CPU serves, but whose memory is its own: what a command forgets to bring
/// there, or back, is missing, as on a device. New memory is full of NaNs.
class ApartPlace : public Place {
 public:
  /// Another device than the CPU's: no call is served, but all are checked.
  explicit ApartPlace(Device device = {}) : device_(device) {}

  Device device() const override { return device_; }
  Stream stream() const override { return {}; }
  bool is_host() const override { return false; }
  std::string description() const override { return "apart"; }
  std::size_t available_bytes() const override { return 0; }

  void* allocate(std::size_t bytes) override {
    ++allocations;
    void* memory = ::operator new(bytes, alignment);
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  void free(void* memory, std::size_t) noexcept override {
    --allocations;
    ::operator delete(memory, alignment);
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void set(void* to, unsigned char byte, std::size_t bytes) override {
    std::memset(to, byte, bytes);
  }

  void synchronize() override {}
  void mark(std::size_t number) override { host_place().mark(number); }
  double seconds_between(std::size_t from, std::size_t to) override {
    return host_place().seconds_between(from, to);
  }
  std::unique_ptr<Recording> record(std::function<void()> calls) override {
    return host_place().record(std::move(calls));
  }

  int allocations = 0;

 private:
  static constexpr std::align_val_t alignment{256};
  Device device_;
};

/// Runs a command's work on a device that no machine has. Its tensors must all say that they are
/// there: the calls may be refused for want of the device alone.
template <class Work>
void expect_refused_for_want_of_the_device(Work&& work) {
  ApartPlace nowhere({DeviceType::cuda, 1000});
  try {
    work(nowhere);
    ADD_FAILURE() << "served";
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::unsupported || error.code() == ErrorCode::device)
        << error.what();
  }
  EXPECT_EQ(nowhere.allocations, 0);
}

}  // namespace msa::cli
