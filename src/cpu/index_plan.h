// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "msa/metadata.h"
#include "msa/types.h"

/// \file
/// How index_blocks and index_scores cut a batch into tasks. Nothing here changes a result.

namespace msa::cpu {

/// Neighbouring rows of one request, or rows of no request.
struct IndexTile {
  std::int64_t request = 0;
  std::int64_t first_token = 0;
  std::int64_t tokens = 0;         // at least 1
  std::int64_t first_visible = 0;  // keys that the first row sees, before clamping; ≤ 0: none
  std::int64_t keys = 0;           // of the request: none at or past it is read; 0: empty rows
  bool decode = false;

  // Filled by split_tiles.
  std::int64_t parts = 1;
  std::int64_t pool_offset = 0;  // of the parts' lists in the workspace, in list entries

  /// Blocks that row `t` sees.
  std::int64_t valid_blocks(std::int64_t t) const {
    return (std::clamp<std::int64_t>(first_visible + t, 0, keys) + page_size - 1) / page_size;
  }
  /// Blocks that some row sees.
  std::int64_t blocks() const { return valid_blocks(tokens - 1); }
};

/// A range of blocks of one tile: one task.
struct IndexPart {
  std::int64_t tile = 0;
  std::int64_t index = 0;
  std::int64_t first_block = 0;
  std::int64_t last_block = 0;
};

/// Tiles that cover every row t < T once. A decode request is one tile; prefill tiles have as many
/// tokens as pay for the conversion of a page. Metadata that contradicts itself is clamped.
std::vector<IndexTile> index_tiles(const BatchMetadata& batch, std::int64_t heads);

/// The tasks: whole tiles where there are enough of them for the threads, else parts whose lists
/// (tokens · lists · topk entries of 8 bytes each) fit `workspace_bytes` together.
std::vector<IndexPart> split_tiles(std::vector<IndexTile>& tiles, std::int64_t heads,
                                   std::int64_t lists, std::int64_t topk,
                                   std::size_t workspace_bytes, int threads);

/// Workspace that lets split_tiles cut as it likes, at most `cap`.
std::size_t index_workspace_bytes(const BatchMetadata& batch, std::int64_t heads,
                                  std::int64_t lists, std::int64_t topk, std::size_t cap);

}  // namespace msa::cpu
