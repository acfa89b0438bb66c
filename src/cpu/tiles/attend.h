// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/attend_plan.h"
#include "cpu/tiles/types.h"
#include "msa/types.h"

/// \file
/// attend's products on tiles, for the part of a call that is not vector code: which rows and
/// blocks go onto tiles together. cpu/attend-inl.h prepares the rows and finishes them.

namespace msa::cpu {

/// The rows of q as tiles hold them.
class TileQueries {
 public:
  static constexpr std::int64_t groups_of(std::int64_t rows) {
    return (rows + tiles::group_rows - 1) / tiles::group_rows;
  }
  /// Memory that `rows` rows take; 64-byte aligned.
  static constexpr std::int64_t floats(std::int64_t rows) {
    return groups_of(rows) * (tiles::group_rows * head_dim / 2 + 1);
  }

  TileQueries(float* memory, std::int64_t rows);

  /// `q` [rows][128], scaled; `scale` [rows]: what is left of the logit scale.
  void pack(const float* q, const float* scale, std::int64_t rows) const;

  std::uint32_t* pairs;    // [groups of 16][64][16]
  std::uint16_t* inexact;  // [groups of 16]: rows for which tiles would lose bits
};

/// Blocks of one tile of rows.
class TileAttend {
 public:
  /// The rows' memory: q and what is left of the logit scale; running maxima, sums and results.
  struct Rows {
    const float* q;      // [rows][128]
    const float* scale;  // [rows]
    float* maximum;      // [rows]
    float* sum;          // [rows]
    float* out;          // [rows][128]
  };

  /// Working memory.
  static constexpr std::int64_t work_floats = tiles::attend_work_bytes / 4;

  /// `work`: work_floats, 64-byte aligned.
  TileAttend(const AttendCall& call, const TileRows& tile, std::int64_t head, void* work)
      : call_(call), tile_(tile), head_(head), work_(work) {}

  /// Folds blocks [begin, end) of the union list into the rows.
  void run(const std::vector<UnionBlock>& list, std::int64_t begin, std::int64_t end,
           const Rows& rows, const TileQueries& queries) const;

 private:
  const AttendCall& call_;
  const TileRows& tile_;
  std::int64_t head_;
  void* work_;
};

}  // namespace msa::cpu
