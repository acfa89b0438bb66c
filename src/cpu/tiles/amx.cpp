// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/tiles/amx_products.h"
// The include above names the engine of those below.
#include "cpu/tiles/attend-inl.h"
#include "cpu/tiles/index-inl.h"
#include "cpu/tiles/types.h"

namespace msa::cpu::tiles {

const Kernels amx_kernels = {amx::begin,
                             amx::end,
                             amx::attend::pack_queries,
                             amx::attend::fold_block,
                             amx::index::pack_queries,
                             amx::index::score_keys};

}  // namespace msa::cpu::tiles
