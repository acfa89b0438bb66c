// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/tiles/avx512_bf16_products.h"
// The include above names the engine of those below.
#include "cpu/tiles/attend-inl.h"
#include "cpu/tiles/index-inl.h"
#include "cpu/tiles/types.h"

namespace msa::cpu::tiles {

const Kernels avx512_bf16_kernels = {avx512_bf16::begin,
                                     avx512_bf16::end,
                                     avx512_bf16::attend::pack_queries,
                                     avx512_bf16::attend::fold_block,
                                     avx512_bf16::index::pack_queries,
                                     avx512_bf16::index::score_keys};

}  // namespace msa::cpu::tiles
