// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The indexer on tiles: S^T[keys][16 rows] = K · Q^T, one row a lane, of which the largest key is
/// kept. Before a group's maxima are taken, the products of the next ones are started, which
/// AMX computes meanwhile.
///
/// Elements from 2^-56 up to 2^60, and 0, are **normal**: products of two are multiples of 2^-126
/// below 2^121, so that no sum is a denormal number, which tiles flush, nor leaves f32's range.
/// Keys and rows with any other element, NaN and infinity among them, pass by the tiles, each known
/// by its own elements: no row's bits depend on another row or key.

#include "cpu/tiles/cache-inl.h"

namespace msa::cpu::tiles::MSA_TILE_ENGINE::index {
namespace {

constexpr Normal normal_elements{exponent_field(-56), exponent_field(60)};
constexpr int pairs = head / 2;
/// Tiles of fp8 keys that are converted together where one group needs them: 16 KB of bf16.
constexpr int streamed_tiles = 4;

/// Where the working memory holds what.
struct Work {
  alignas(64) std::uint16_t k[page * head];  // fp8 keys as bf16; of bf16 keys the last tile
  // S^T: of the groups that are looked at, and of the next ones.
  float s[2][groups_at_once][page * tile_rows];
};
static_assert(sizeof(Work) <= index_work_bytes, "the working memory has room for all of it");

/// Largest logit of each lane among the keys that it sees.
__m512 largest_of(const float* s, int keys, __m512i visible, __mmask16 exist) {
  const __m512 minus_infinity = _mm512_set1_ps(-__builtin_inff());
  const auto logits = [&](int key) { return _mm512_load_ps(s + key * tile_rows); };
  const int all_see = _mm512_mask_reduce_min_epi32(exist, visible);
  __m512 best[4] = {minus_infinity, minus_infinity, minus_infinity, minus_infinity};
  int key = 0;
  for (; key + 4 <= all_see; key += 4) {
    for (int i = 0; i < 4; ++i) best[i] = _mm512_max_ps(best[i], logits(key + i));
  }
  for (; key < keys; ++key) {
    const __mmask16 seen = _mm512_cmpgt_epi32_mask(visible, _mm512_set1_epi32(key));
    best[0] = _mm512_mask_max_ps(best[0], seen, best[0], logits(key));
  }
  return _mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3]));
}

void leave_out(const KeySet& exceptional, int keys, float* s) {
  if (exceptional.empty()) return;
  for (int key = 0; key < keys; ++key) {
    if (exceptional.has(key)) {
      _mm512_store_ps(s + key * tile_rows, _mm512_set1_ps(-__builtin_inff()));
    }
  }
}

/// Adds what passed by the tiles to the scores of a group's rows.
void correct_scores(const KeySet& exceptional, const KeyTiles& keys, int first, unsigned inexact,
                    const IndexRows& rows, float* scores) {
  if (inexact == 0 && exceptional.empty()) return;
  const int last = first + tile_rows < rows.rows ? first + tile_rows : rows.rows;
  for (int r = first; r < last; ++r) {
    const bool all = (inexact >> (r - first) & 1) != 0;
    float best = all ? -__builtin_inff() : scores[r];
    bool nan = false;
    for (int key = 0; key < rows.visible[r]; ++key) {
      if (!all && !exceptional.has(key)) continue;
      const float x = dot(rows.q + r * head, keys.key(key));
      nan = nan || x != x;
      if (x > best) best = x;
    }
    scores[r] = nan ? __builtin_nanf("") : best + 0.0f;  // −0 + 0 = +0
  }
}

CacheRows rows_of(const IndexKeys& keys) { return {keys.type, keys.data, keys.stride, keys.count}; }

}  // namespace

std::uint16_t pack_queries(const float* q, int rows, std::uint32_t* q_tile) {
  const __m512 least = _mm512_set1_ps(0x1p-56f), end = _mm512_set1_ps(0x1p60f);
  unsigned inexact = 0;
  for (int r = 0; r < rows; ++r) {
    unsigned normal = 0xffff;
    for (int i = 0; i < head; i += 16) {
      const __m512 x = _mm512_abs_ps(_mm512_loadu_ps(q + r * head + i));
      const unsigned zero = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ);
      const unsigned inside =
          _mm512_cmp_ps_mask(x, least, _CMP_GE_OQ) & _mm512_cmp_ps_mask(x, end, _CMP_LT_OQ);
      normal &= zero | inside;
    }
    if (normal != 0xffff) inexact |= 1u << r;
  }
  pack_rows(q, rows, q_tile);
  return static_cast<std::uint16_t>(inexact);
}

void score_keys(const IndexKeys& block, const IndexKeys& next, const IndexRows& rows, void* memory,
                float* scores) {
  Work& work = *static_cast<Work*>(memory);
  begin();
  const CacheRows cached = rows_of(block);
  Fetch fetch(rows_of(next));
  const int key_tiles = (block.count + tile_rows - 1) / tile_rows;
  const bool fp8 = block.type != CacheType::bf16;
  KeySet exceptional;
  KeyTiles keys;
  if (fp8) {
    exceptional = find_no_numbers_fp8(cached);
  } else {
    exceptional = watch_keys(cached, normal_elements, [&] { fetch.rows(4); });
    keys = tiles_in_place(cached, work.k);
  }
  // Keys that one group needs are multiplied while they are in the first-level cache.
  const bool streamed =
      fp8 && rows.rows <= tile_rows && rows.inexact[0] == 0 && exceptional.empty();
  if (fp8) {
    for (int first = 0; first < key_tiles; first += streamed_tiles) {
      const int last = first + streamed_tiles < key_tiles ? first + streamed_tiles : key_tiles;
      std::uint16_t* to = work.k + (streamed ? 0 : first * tile_rows * head);
      convert_keys(cached, first * tile_rows, last * tile_rows, to);
      fetch.rows(streamed_tiles * tile_rows);
      if (streamed) {
        const KeyProducts products{rows.q_tiles, rows.rows, work.s[0][0] + first * tile_words};
        multiply_keys(tiles_of(to, (last - first) * tile_rows), 0, last - first, &products, 1);
      }
    }
    keys = tiles_of(work.k, block.count);
  }
  constexpr int rows_at_once = groups_at_once * tile_rows;
  const auto multiply_groups = [&](int first) {
    KeyProducts products[groups_at_once];
    int count = 0;
    for (int row = first; count < groups_at_once && row < rows.rows; row += tile_rows, ++count) {
      products[count] = {rows.q_tiles + row * pairs, rows.rows - row,
                         work.s[first / rows_at_once % 2][count]};
    }
    multiply_keys(keys, 0, key_tiles, products, count);
  };
  if (!streamed) multiply_groups(0);
  for (int first = 0; first < rows.rows; first += tile_rows) {
    const int next_groups = first + rows_at_once;
    if (first % rows_at_once == 0 && next_groups < rows.rows) multiply_groups(next_groups);
    float* s = work.s[first / rows_at_once % 2][first / tile_rows % groups_at_once];
    leave_out(exceptional, block.count, s);
    const int left = rows.rows - first;
    const auto exist = static_cast<__mmask16>(left < tile_rows ? (1u << left) - 1 : 0xffffu);
    const __m512i visible = _mm512_maskz_loadu_epi32(exist, rows.visible + first);
    const __m512 best = largest_of(s, block.count, visible, exist);
    _mm512_mask_storeu_ps(scores + first, exist, _mm512_add_ps(best, _mm512_setzero_ps()));
    correct_scores(exceptional, keys, first, rows.inexact[first / tile_rows], rows, scores);
  }
  fetch.rows(page);
  end();
}

}  // namespace msa::cpu::tiles::MSA_TILE_ENGINE::index
