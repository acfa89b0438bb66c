// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "msa/types.h"

/// \file
/// What MSA_CHECK=1 needs of a device; no other call waits for one.

namespace msa::cuda {

/// Whether `stream` of the device is being captured.
bool capturing(const char* op, Device device, Stream stream);

/// Copies device memory to the host on `stream`, and waits.
void download(const char* op, Device device, Stream stream, void* to, const void* from,
              std::size_t bytes);

/// After a call's launches: under MSA_CHECK=1 waits for them, unless they were captured, so that a
/// fault of theirs is reported by this call and not by one that happens to come later.
void settle(const char* op, Device device, Stream stream);

}  // namespace msa::cuda
