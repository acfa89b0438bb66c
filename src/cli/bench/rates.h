// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// \file
/// The two loops that measure what this machine can do, for the chosen instruction set.

namespace msa::cli {

/// `iterations` rounds of the set's best products on registers alone: f32 multiply-adds, with amx
/// and avx512_bf16 products of bf16. Returns the operations done (a multiply-add counts two).
double product_loop(std::int64_t iterations);

/// Reads every byte once, through full vectors. The result is a function of the bytes.
std::uint32_t read_loop(const void* data, std::size_t bytes);

}  // namespace msa::cli
