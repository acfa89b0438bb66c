// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/host_device.h"

/// \file
/// How prefill tokens are divided into tiles: pure functions of integers, the same on host and
/// device.
///
/// A tile is some consecutive tokens of one request with the query heads of one KV head: 128 rows
/// of the products. Its pages are the ascending union of what its tokens chose. Which tokens share
/// a tile never changes a row's bits: every row has its own running softmax over its own pages, in
/// ascending order, and what it did not choose is added to it as zeros.

namespace msa::cuda {

inline constexpr int tile_rows = 128;

/// Rows of a token: G and what pads it, so that a token never lies in two warpgroups, nor in two
/// row tiles of mma.sync, and a tile has at most 32 tokens, one bit each.
MSA_HOST_DEVICE constexpr int padded_group_log2(int group) {
  return group <= 4 ? 2 : group <= 8 ? 3 : 4;
}

/// Tokens of a tile whose list has room for `max_ids` ids: a function of G and topk alone.
MSA_HOST_DEVICE constexpr int tokens_of_tile(int group, int topk, int max_ids) {
  const int by_rows = tile_rows >> padded_group_log2(group), by_ids = max_ids / topk;
  return by_rows < by_ids ? by_rows : by_ids;
}

/// Tiles are numbered without a pass over the requests: request r, whose tokens begin at `begin`,
/// has the places from here on, enough for its ceil(n / tile) tiles, up to the next request's. Some
/// stay empty, one a request at most.
MSA_HOST_DEVICE constexpr std::int64_t first_place(std::int64_t begin, std::int64_t request,
                                                   int tile) {
  return begin / tile + request;
}
/// All places, those of the tokens behind the last request among them.
MSA_HOST_DEVICE constexpr std::int64_t places_of(std::int64_t tokens, std::int64_t requests,
                                                 int tile) {
  return first_place(tokens, requests + 1, tile);
}

/// The tiles of a call of so many prefill tokens and requests.
struct Tiling {
  Tiling() = default;
  Tiling(std::int64_t tokens, std::int64_t requests, int group, int topk, int max_ids)
      : tokens(tokens),
        tile_tokens(tokens_of_tile(group, topk, max_ids)),
        padded_group_log2(cuda::padded_group_log2(group)),
        capacity(tile_tokens * topk),
        places(places_of(tokens, requests, tile_tokens)) {}

  std::int64_t tokens = 0;  // of prefill requests and behind them
  int tile_tokens = 0;
  int padded_group_log2 = 0;
  int capacity = 0;         // tile_tokens · topk: the longest list
  std::int64_t places = 0;  // of tiles of one head
};

/// Where a tile lies. A Call is an AttendCall.
struct TilePlace {
  std::int64_t first_token;  // of the call's prefill tokens
  std::int64_t position;     // of the first token, in the request
  std::int32_t request, head;
  std::int32_t rows;     // its tokens, the rows of its list; 0: there is no such tile
  std::int32_t seq_len;  // of its request; 0: it has none

  /// Keys that token `row` of the tile sees, of a request of `keys` keys.
  template <class Call>
  MSA_HOST_DEVICE std::int32_t visible(const Call& call, std::int32_t keys, int row) const {
    if (!call.causal) return keys;
    const std::int64_t seen = position + row + 1;
    return static_cast<std::int32_t>(seen < 0 ? 0 : seen < keys ? seen : keys);
  }
};

/// A row of the products: a query head of a token.
struct TileRow {
  MSA_HOST_DEVICE TileRow(const Tiling& tiling, int row)
      : own_token(row >> tiling.padded_group_log2),
        own_head(row & ((1 << tiling.padded_group_log2) - 1)) {}

  template <class Call>
  MSA_HOST_DEVICE bool exists(const Call& call, const TilePlace& tile) const {
    return own_token < tile.rows && own_head < call.group;
  }
  MSA_HOST_DEVICE std::int64_t token(const TilePlace& tile) const {
    return tile.first_token + own_token;
  }
  template <class Call>
  MSA_HOST_DEVICE int q_head(const Call& call, const TilePlace& tile) const {
    return tile.head * call.group + own_head;
  }

  int own_token, own_head;  // of the tile
};

}  // namespace msa::cuda
