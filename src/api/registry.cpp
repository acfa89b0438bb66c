// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <array>

#include "api/backend.h"
#include "cpu/backend.h"

namespace msa {

std::span<const Backend* const> registered_backends() {
  static const std::array<const Backend*, 1> backends = {&cpu::backend()};
  return backends;
}

}  // namespace msa
