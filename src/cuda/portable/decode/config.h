// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "cuda/portable/decode/plan.h"
#include "msa/types.h"

/// \file
/// Sizes of the portable decode kernel: threads, steps, and who owns which byte of shared memory.

namespace msa::cuda::portable::decode {

/// Groups that the keys of a step are divided into, 16 of each 64: a warp's logits of one tile are
/// of one group.
inline constexpr int key_groups = 4;
/// Four warps a tile: with four for two tiles, a step of them took 4,700 cycles, of which the
/// schedulers were busy for a third.
MSA_HOST_DEVICE constexpr int warps_of(int tiles) { return key_groups * tiles; }
MSA_HOST_DEVICE constexpr int threads_of(int tiles) { return 32 * warps_of(tiles); }
/// Two CTAs of 99 KB keep 128 KB under way on a SM of 227 KB; one fits where a SM has 100.
inline constexpr int ctas_per_sm = 2;
/// What SM86, SM89, SM120 and SM121 let a block have.
inline constexpr std::size_t most_shared_bytes = 101376;

/// Shapes of the kernel for elements of `element_bytes` and `tiles_` m16 tiles.
template <int element_bytes, int tiles_>
struct Shape {
  static constexpr int tiles = tiles_;
  static constexpr int warps = warps_of(tiles);
  static constexpr int rows = 16 * tiles;
  static constexpr int columns = head_dim / warps;  // of O, of a warp
  /// Keys of a step, half a page or one: 16 or 32 keys a group. A step of 8-bit elements is a whole
  /// page where P leaves the room.
  static constexpr int keys = element_bytes == 1 && tiles == 1 ? page_size : page_size / 2;
  static constexpr int page_steps = page_size / keys;
  static constexpr int row_bytes = head_dim * element_bytes;
  static constexpr int slot_bytes = keys * row_bytes;
  /// Steps whose K and V are under way while one is computed.
  static constexpr int depth = element_bytes == 1 && tiles == 2 ? 3 : 2;
  /// Queries stay in registers where they fit.
  static constexpr bool q_in_registers = tiles == 1;
  static constexpr int q_bytes = rows * head_dim * 2;
};

/// Shared memory.
template <class S>
struct Shared {
  /// Rows of 128 or 256 bytes, 16-byte chunks swizzled by the row. K of a step is freed before its
  /// products with V, which needs one slot more.
  alignas(256) unsigned char k[S::depth][S::slot_bytes];
  alignas(256) unsigned char v[S::depth + 1][S::slot_bytes];
  /// Q: [rows][128] of 16 bits, swizzled likewise; where it goes to registers it lies in v's last
  /// slot until then.
  alignas(256) unsigned char q[S::q_in_registers ? 256 : S::q_bytes];
  /// P of even and odd steps: [rows][keys] of 16 bits, swizzled.
  alignas(256) unsigned char p[2][S::rows * S::keys * 2];
  /// (maximum, sum) of a step's rows over each group of keys.
  alignas(16) float2 stats[2][S::rows][key_groups];
  float factor[S::rows];      // of a pair's logits, base 2
  std::uint8_t row[S::rows];  // of the item, that a pair belongs to
  std::int32_t length;        // pages of the list
  std::int32_t seq_len;
  /// The list: block, rows that chose it (a bit each), page.
  std::int32_t id[max_ids(S::tiles)], rows[max_ids(S::tiles)], page[max_ids(S::tiles)];
};

/// What makes the list lies in K's place: two numbers an id, and two sets of 32 words.
inline constexpr std::size_t scratch_bytes = (2 * max_ids(1) + 64) * sizeof(std::int32_t);

template <class S>
constexpr std::size_t dynamic_bytes() {
  static_assert(sizeof(Shared<S>) <= most_shared_bytes, "it fits a block of 99 KB");
  static_assert(S::depth * S::slot_bytes >= scratch_bytes, "lists are made in K's place");
  static_assert(!S::q_in_registers || S::slot_bytes >= S::q_bytes, "Q waits in a slot of V");
  return sizeof(Shared<S>);
}

}  // namespace msa::cuda::portable::decode
