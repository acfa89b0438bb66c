// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/rates_tiles.h"
#include "cpu/tiles/amx.h"

namespace msa::cli {

double amx_product_loop(std::int64_t iterations) {
  using namespace cpu::tiles::amx;
  using cpu::tiles::tile_depth;
  using cpu::tiles::tile_rows;
  configure_tiles();  // all tiles 0
  for (std::int64_t i = 0; i < iterations; ++i) {
    // Six sums cover a product's latency of 52 cycles; one starts every 16.
    multiply<0, 6, 7>();
    multiply<1, 6, 7>();
    multiply<2, 6, 7>();
    multiply<3, 6, 7>();
    multiply<4, 6, 7>();
    multiply<5, 6, 7>();
  }
  release_tiles();
  return 6.0 * 2 * tile_rows * tile_rows * tile_depth * static_cast<double>(iterations);
}

}  // namespace msa::cli
