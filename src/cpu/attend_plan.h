// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "msa/attend.h"

/// \file
/// What attend computes, free of vector code: rows, tiles, union lists, decode groups.
///
/// A **tile** is a run of neighbouring token rows of one request with one KV head: at most 64
/// tokens, G rows of q each. Its **union list** holds every block that some token of it chose,
/// once, so that a page is converted once for all of them.

namespace msa::cpu {

/// The arguments as plain numbers; strides in elements.
struct AttendCall {
  explicit AttendCall(const AttendArgs& args);

  struct Pages {
    const void* data = nullptr;
    std::int64_t page = 0, head = 0, token = 0;  // strides
  };
  struct Rows {
    void* data = nullptr;
    DType type = DType::f32;
    std::int64_t token = 0, head = 0;  // strides
  };

  const void* q = nullptr;
  DType q_type = DType::bf16;
  std::int64_t q_token = 0, q_head = 0;
  Pages k, v;
  DType cache_type = DType::bf16;
  std::int64_t pages = 0;
  std::int64_t kv_heads = 1, group = 1;  // Hkv, G

  const std::int32_t* selection = nullptr;
  std::int64_t selection_token = 0, selection_list = 0, selection_slot = 0;
  std::int64_t lists = 1, topk = 0;

  const std::int32_t* table = nullptr;
  std::int64_t table_row = 0, table_column = 0, table_width = 0;

  Rows out;
  Rows lse;  // data null where not wanted

  double logit_scale = 1;  // softmax scale · k scale
  float v_scale = 1;
  bool causal = true;
  std::int64_t rank = 0, world = 1;

  /// The type in which the contract rounds q and P.
  DType product_type() const;

  /// Products on tiles (cpu/tiles); else all of them are f32 multiply-adds.
  bool on_tiles = false;
};

/// Neighbouring token rows of one request.
struct TileRows {
  std::int64_t request = 0;
  std::int64_t first = 0;     // token row
  std::int64_t count = 0;     // at most max_tile_tokens
  std::int64_t position = 0;  // of row `first`
  std::int64_t seq_len = 0;

  /// Keys that row `first + i` sees.
  std::int64_t visible(std::int64_t i, bool causal) const {
    const std::int64_t length = std::max<std::int64_t>(seq_len, 0);
    return causal ? std::clamp<std::int64_t>(position + i + 1, 0, length) : length;
  }
};

inline constexpr std::int64_t max_tile_tokens = 64;
/// Rows of q of a tile, at most: attend.cpp's largest; a decode request of 16 tokens with 16 heads
/// each has half as many.
inline constexpr std::int64_t max_tile_q_rows = 512;

/// A block of a tile's union list.
struct UnionBlock {
  std::int64_t block = 0;
  std::int64_t page = 0;
  std::int64_t keys = 0;     // visible to the tile's furthest row that chose it
  std::uint64_t tokens = 0;  // bit i: token i of the tile chose the block
};

/// The tile's union list for one KV head, ascending: blocks that are visible to the row that names
/// them, belong to this shard and have a page. Order, repeats and holes of the selection are gone.
std::vector<UnionBlock> union_list(const AttendCall& call, const TileRows& tile, std::int64_t head);

/// The rows of a batch: decode requests, tiles of prefill rows, and rows of no request.
struct BatchRows {
  BatchRows(const BatchMetadata& batch, std::int64_t tile_tokens);

  std::vector<TileRows> decode;
  std::vector<TileRows> prefill;
  std::vector<TileRows> uncovered;  // any length
};

/// Decode folds its union list in groups of this many blocks, so that groups may run on any
/// threads.
inline constexpr std::int64_t decode_group_blocks = 4;

/// Shape of the partial results that let the groups of one decode request run in parallel.
struct DecodeSplit {
  explicit DecodeSplit(const AttendArgs& args);

  std::int64_t items = 0;   // requests · KV heads
  std::int64_t groups = 0;  // of an item, at most
  std::int64_t rows = 0;    // m · G

  /// Floats of one partial: out [rows][128], maximum [rows], sum [rows].
  std::int64_t partial_floats() const { return rows * (head_dim + 2); }
  /// Bytes for all partials; 0 where splitting is of no use or passes the cap.
  std::size_t workspace_bytes() const;

 private:
  std::size_t cap_ = 0;
};

}  // namespace msa::cpu
