// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "api/backend.h"
#include "common/place.h"

/// \file
/// A CUDA device as a program's place: memory, a stream, graphs, events. For the command and the
/// tests; the library holds nothing of it.

namespace msa::cuda {

/// Why programs cannot use the device; empty = they can.
Reasons place_reasons(int device);

/// The first device that `place_reasons` has nothing against; −1 where there is none.
int first_place();

/// Of a device that `place_reasons` has nothing against. \throws Error (device)
std::unique_ptr<Place> make_place(int device);

/// Versions, "13.0", and what there is.
struct Machine {
  struct Gpu {
    std::string name;
    int capability = 0;  ///< major · 10 + minor
    int multiprocessors = 0;
    std::size_t memory = 0;  ///< bytes
  };
  std::string compiled;   ///< of the headers and the compiler
  std::string runtime;    ///< that is linked in
  std::string driver;     ///< "" where there is none
  std::vector<Gpu> gpus;  ///< cuda:0, cuda:1, …
};
Machine machine();

}  // namespace msa::cuda
