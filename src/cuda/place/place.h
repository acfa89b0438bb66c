// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

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

}  // namespace msa::cuda
