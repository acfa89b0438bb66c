// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "cli/bench/rates_tiles.h"

namespace msa::cli {

double avx512_bf16_product_loop(std::int64_t iterations) {
  constexpr int chains = 16;  // an instruction's latency is about six, one or two start every cycle
  const __m512bh factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3c003c00));  // 2^-7 each
  __m512 sums[chains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < iterations; ++i) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factor, factor);
  }
  __m512 all = sums[0];
  for (int c = 1; c < chains; ++c) all = _mm512_add_ps(all, sums[c]);
  // The comparison keeps the loop alive and never changes the count.
  const double counted = _mm512_reduce_add_ps(all) >= 0 ? chains : 0;
  return counted * 2 * 2 * 16 * static_cast<double>(iterations);
}

}  // namespace msa::cli
