// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

/// \file
/// What a process notes about each of its devices.

namespace msa::cuda {

/// Devices that notes have room for.
inline constexpr int max_devices = 64;

/// Something that is found out once for each device.
template <class T>
class DeviceNotes {
 public:
  template <class Find>
  const T& of(int device, Find find) {
    std::call_once(once_[device], [&] { notes_[device] = find(device); });
    return notes_[device];
  }

 private:
  T notes_[max_devices];
  std::once_flag once_[max_devices];
};

}  // namespace msa::cuda
