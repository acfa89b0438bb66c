// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/sm90/common/arithmetic.h"

/// \file
/// Schedule arithmetic of the prefill kernel: pure functions of integers, the same on host and
/// device.
///
/// A tile is some consecutive tokens of one request with the query heads of one KV head: 128 rows
/// of the products, 64 for each of two warpgroups. Its pages are the ascending union of what its
/// tokens chose. Which tokens share a tile never changes a row's bits: every row has its own
/// running softmax over its own pages, in ascending order, and what it did not choose is added to
/// it as zeros.

namespace msa::cuda::sm90::prefill {

inline constexpr int groups = 2;  // warpgroups
inline constexpr int group_rows = 64;
inline constexpr int tile_rows = groups * group_rows;

/// Rows of a token: G and what pads it, so that a token never lies in two warpgroups and a tile has
/// at most 32 tokens, one bit each.
MSA_HOST_DEVICE constexpr int padded_group_log2(int group) {
  return group <= 4 ? 2 : group <= 8 ? 3 : 4;
}

/// Ids of a tile: the lists must fit beside the ring.
inline constexpr int max_ids = 512;

/// Tokens of a tile: a function of G and topk alone.
MSA_HOST_DEVICE constexpr int tile_tokens(int group, int topk) {
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
MSA_HOST_DEVICE constexpr std::int64_t places(std::int64_t tokens, std::int64_t requests,
                                              int tile) {
  return first_place(tokens, requests + 1, tile);
}

}  // namespace msa::cuda::sm90::prefill
