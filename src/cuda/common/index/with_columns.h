// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

namespace msa::cuda {

/// body(n) with the number of columns that a kernel is compiled for, `least` or more, as a
/// constant.
template <int least, class Body>
void with_columns(int columns, Body body) {
  switch (columns) {
    case 8:
      if constexpr (least <= 8) body(std::integral_constant<int, 8>{});
      break;
    case 16:
      return body(std::integral_constant<int, 16>{});
    case 32:
      return body(std::integral_constant<int, 32>{});
    case 64:
      return body(std::integral_constant<int, 64>{});
    case 128:
      return body(std::integral_constant<int, 128>{});
    default:
      return body(std::integral_constant<int, 256>{});
  }
}

}  // namespace msa::cuda
