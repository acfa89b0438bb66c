// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/tiles/attend.h"

#include <algorithm>
#include <bit>

#include "cpu/tiles/kernels.h"
#include "msa/types.h"

namespace msa::cpu {
namespace {

constexpr std::int64_t pairs = head_dim / 2;
constexpr std::int64_t most_groups = max_tile_q_rows / tiles::group_rows;

tiles::CacheType cache_type(DType type) {
  if (type == DType::e4m3) return tiles::CacheType::e4m3;
  return type == DType::e5m2 ? tiles::CacheType::e5m2 : tiles::CacheType::bf16;
}

/// Tiles configured while it lives: a thread may be any program's.
class Tiles {
 public:
  explicit Tiles(const tiles::Kernels& kernels) : kernels_(kernels) { kernels_.begin(); }
  ~Tiles() { kernels_.end(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  const tiles::Kernels& kernels_;
};

tiles::AttendBlock block_of(const AttendCall& call, std::int64_t head, const UnionBlock& block) {
  const auto size = static_cast<std::int64_t>(size_of(call.cache_type));
  const auto first = [&](const AttendCall::Pages& pages) {
    return static_cast<const char*>(pages.data) +
           (block.page * pages.page + head * pages.head) * size;
  };
  return {cache_type(call.cache_type), first(call.k),       first(call.v),
          call.k.token * size,         call.v.token * size, static_cast<int>(block.keys)};
}

/// Groups with a row that chose the block, and what each row sees of it.
std::int64_t choose_groups(const AttendCall& call, const TileRows& tile, const UnionBlock& block,
                           tiles::AttendGroup* groups) {
  const std::int64_t rows = tile.count * call.group;
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < rows; first += tiles::group_rows) {
    const std::int64_t end = std::min<std::int64_t>(first + tiles::group_rows, rows);
    const std::int64_t first_token = first / call.group, last_token = (end - 1) / call.group;
    const std::uint64_t chosen = block.tokens >> first_token << first_token;
    if (std::countr_zero(chosen) > last_token) continue;
    tiles::AttendGroup& group = groups[count++];
    group.first = first;
    group.rows = static_cast<int>(end - first);
    std::fill_n(group.visible, tiles::group_rows, 0);
    for (std::int64_t token = first_token; token <= last_token; ++token) {
      if ((block.tokens >> token & 1) == 0) continue;
      const std::int64_t keys = tile.visible(token, call.causal) - block.block * page_size;
      const std::int64_t from = std::max(token * call.group, first);
      const std::int64_t to = std::min((token + 1) * call.group, end);
      std::fill(group.visible + (from - first), group.visible + (to - first),
                static_cast<std::int32_t>(std::min<std::int64_t>(keys, page_size)));
    }
  }
  return count;
}

}  // namespace

TileQueries::TileQueries(float* memory, std::int64_t rows)
    : pairs(reinterpret_cast<std::uint32_t*>(memory)),
      inexact(reinterpret_cast<std::uint16_t*>(memory + groups_of(rows) * tiles::group_rows *
                                                            msa::cpu::pairs)) {}

void TileQueries::pack(const float* q, const float* scale, std::int64_t rows) const {
  for (std::int64_t g = 0; g < groups_of(rows); ++g) {
    const std::int64_t first = g * tiles::group_rows;
    inexact[g] = tiles::kernels()->pack_queries(
        q + first * head_dim, scale + first,
        static_cast<int>(std::min<std::int64_t>(tiles::group_rows, rows - first)),
        pairs + first * msa::cpu::pairs);
  }
}

void TileAttend::run(const std::vector<UnionBlock>& list, std::int64_t begin, std::int64_t end,
                     const Rows& rows, const TileQueries& queries) const {
  const tiles::Kernels& kernels = *tiles::kernels();
  const Tiles tiles(kernels);
  const tiles::AttendRows memory{rows.q,       queries.pairs, queries.inexact, rows.scale,
                                 rows.maximum, rows.sum,      rows.out};
  tiles::AttendGroup groups[most_groups];
  for (std::int64_t b = begin; b < end; ++b) {
    const bool last = b + 1 == static_cast<std::int64_t>(list.size());
    const tiles::AttendBlock next =
        last ? tiles::AttendBlock() : block_of(call_, head_, list[b + 1]);
    const std::int64_t count = choose_groups(call_, tile_, list[b], groups);
    kernels.attend_block(block_of(call_, head_, list[b]), next, groups, count, memory, work_);
  }
}

}  // namespace msa::cpu
