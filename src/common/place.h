// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "msa/types.h"

namespace msa {

/// Calls that can be run again and again, each time with the same arguments.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;

  /// Runs the calls and waits for them; seconds that they took.
  virtual double run() = 0;
};

/// Where a program keeps its tensors and runs its calls: the host, or a device with a stream of the
/// program's own. No part of the library, which owns neither memory nor streams.
class Place {
 public:
  Place() = default;
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  virtual ~Place() = default;

  virtual Device device() const = 0;
  virtual Stream stream() const = 0;
  /// "NVIDIA H200 (cuda:0)".
  virtual std::string description() const = 0;
  /// Bytes that could be allocated now; 0 where nobody knows.
  virtual std::size_t available_bytes() const = 0;

  /// Whether its memory is the process's own.
  virtual bool is_host() const { return device().type == DeviceType::cpu; }

  /// Memory at a multiple of 256 bytes. \throws std::bad_alloc
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* memory, std::size_t bytes) noexcept = 0;

  /// Makes copies of this memory of the host fast, several times so on a device; false where that
  /// cannot be had. Such memory may not change before `synchronize` where `upload` reads it.
  virtual bool pin(void* /*host*/, std::size_t /*bytes*/) { return false; }
  virtual void unpin(void* /*host*/) noexcept {}

  /// Copies in the order of the stream's calls. What `upload` reads may change once it has
  /// returned; what `download` writes is there then.
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;  ///< within the place
  virtual void set(void* to, unsigned char byte, std::size_t bytes) = 0;

  /// Waits for everything that the stream was given.
  virtual void synchronize() = 0;

  /// Notes the time at which the stream gets here, under a number from 0 to max_marks − 1. Among
  /// recorded calls: at each run of them.
  static constexpr std::size_t max_marks = 64;
  virtual void mark(std::size_t number) = 0;
  /// Seconds from one mark's last note to another's; waits for the later one.
  virtual double seconds_between(std::size_t from, std::size_t to) = 0;

  /// A device captures the calls in a graph now, and neither they nor what they read may go away.
  virtual std::unique_ptr<Recording> record(std::function<void()> calls) = 0;
};

}  // namespace msa
