// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace msa::cli {

/// `iterations` rounds of bf16 products on AMX tiles alone. Returns the operations done.
double tile_product_loop(std::int64_t iterations);

}  // namespace msa::cli
