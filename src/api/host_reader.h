// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "api/backend.h"
#include "msa/metadata.h"

namespace msa {

/// MSA_CHECK=1: what a call's metadata holds, for checks on the host. Host memory is read in place.
/// Of a device's memory copies are made by the backend that will serve the call, on the call's
/// stream, which is waited for.
class HostReader {
 public:
  /// `choose` gives that backend, and throws where there is none; asked only for a device's memory.
  HostReader(const char* op, Stream stream, std::function<const Backend&()> choose)
      : op_(op), stream_(stream), choose_(std::move(choose)) {}

  /// False where the contents say nothing yet: the call is being captured, and its arrays are those
  /// of later replays.
  bool reads(Device device);

  /// The first `rows` rows of a tensor, of which `reads` was true, in host memory.
  ConstTensor read(const ConstTensor& tensor, std::int64_t rows);
  /// The arrays of a batch that has passed its checks.
  BatchMetadata read(BatchMetadata batch);

 private:
  const Backend& backend();

  const char* op_;
  Stream stream_;
  std::function<const Backend&()> choose_;
  const Backend* chosen_ = nullptr;
  std::deque<std::vector<std::byte>> copies_;
};

}  // namespace msa
