// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// \file
/// Products of bf16 alone, for sources that are compiled for the instructions that they use.

namespace msa::cli {

/// `iterations` rounds of products on AMX tiles. Returns the operations done.
double amx_product_loop(std::int64_t iterations);

/// The same of AVX512-BF16's dot products of pairs.
double avx512_bf16_product_loop(std::int64_t iterations);

}  // namespace msa::cli
