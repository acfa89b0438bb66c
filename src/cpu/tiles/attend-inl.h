// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// attend on tiles: logits come out transposed, S^T[keys][16 rows] = K · Q^T, so that keys are
/// operand A as they lie in a bf16 cache, and softmax has one row a lane and no reductions across
/// lanes. P is transposed back (a word holds two keys' weights, half the work) and meets V, whose
/// rows are interleaved in pairs.
///
/// The groups of a block are computed one after the other, so that what the vector units touch
/// stays in the first-level cache: a store that misses it costs seven cycles, and AMX products gain
/// little from running beside vector code, which has half its multipliers while they do. (Products
/// by AVX512-BF16 are vector code; S^T of two groups at once halves its loads of keys.) Where
/// one group alone chose the block, as in decode of one token, keys and values are converted piece
/// by piece just before their products, for the same reason.
///
/// A row's bits depend on its q, its keys and its values alone: a tile's rows do not mix, and what
/// a row does not see has weight 0 and values that are finite.
///
/// The **exceptional** rows, keys and values (cpu/tiles/cache-inl.h), each known by its own
/// elements, pass by the tiles: their products are f32 multiply-adds, as in cpu/attend-inl.h.
/// Values that are no numbers do so too, as 0 · NaN would reach every row of a tile.

#include "cpu/tiles/cache-inl.h"

namespace msa::cpu::tiles::MSA_TILE_ENGINE::attend {
namespace {

constexpr int pairs = head / 2;
/// Keys that are converted together: 16 KB of bf16.
constexpr int streamed_keys = 64;

/// Of keys: no denormal element, which tiles read as 0.
constexpr Normal normal_keys{exponent_field(-126), 256};
/// Of values: none below 2^-100, whose products with weights may be flushed, and no NaN or
/// infinity.
constexpr Normal normal_values{exponent_field(-100), 255};

CacheRows keys_of(const AttendBlock& block) {
  return {block.type, block.k, block.k_stride, block.keys};
}
CacheRows values_of(const AttendBlock& block) {
  return {block.type, block.v, block.v_stride, block.keys};
}

int whole_steps(int keys) { return (keys + tile_depth - 1) / tile_depth; }

/// Where the working memory holds what.
struct Work {
  alignas(64) float s[groups_at_once][page * group_rows];  // S^T
  std::uint32_t p[page / 2 * group_rows];                  // [4 steps][16 rows][16] pairs of keys
  float o[group_rows * head];                              // P · V of the block: [8][16 rows][16]
  float shrink[2][group_rows];
  std::uint16_t k[page * head];      // fp8 keys as bf16; of bf16 keys the last tile
  std::uint32_t v[page / 2 * head];  // [4 pairs of columns][4 steps][2][16][16] pairs of keys
};
static_assert(sizeof(Work) <= attend_work_bytes, "the working memory has room for all of it");

// ---- values ----

/// Values as operand B, 32 columns at a time; what is exceptional is watched for.
class ValuePacker {
 public:
  explicit ValuePacker(const AttendBlock& block)
      : values_(values_of(block)),
        bytes_(block.type == CacheType::bf16 ? CacheType::e4m3 : block.type),
        watch_(normal_values),
        largest_(_mm512_setzero_si512()) {}

  int rows() const { return whole_steps(values_.count) * tile_depth; }

  /// Columns [32 c, 32 c + 32) of all keys, and of fp8 the 32 behind them.
  void pack(int c, std::uint32_t* to) {
    for (int key = 0; key < rows(); key += 2) pack_pair(c, key, to);
  }
  MSA_TILE_INLINE void pack_pair(int c, int key, std::uint32_t* to) {
    const char* a = key < values_.count ? values_.row(key) : nullptr;
    const char* b = key + 1 < values_.count ? values_.row(key + 1) : nullptr;
    to = pair_words(to, key / 2);
    if (values_.type == CacheType::bf16) {
      pack_bf16(a, b, c, to);
    } else {
      pack_fp8(a, b, c, to);
    }
  }

  /// The values that must pass by the tiles, once all columns are packed.
  KeySet exceptional() const {
    if (values_.type == CacheType::bf16) {
      return watch_.any() ? find_exceptional_bf16(values_, normal_values) : KeySet();
    }
    const int first = values_.type == CacheType::e4m3 ? 0xfe : 0xf8;  // no numbers, shifted
    const bool any =
        _mm512_cmpge_epu8_mask(largest_, _mm512_set1_epi8(static_cast<char>(first))) != 0;
    return any ? find_no_numbers_fp8(values_) : KeySet();
  }

 private:
  MSA_TILE_INLINE void pack_bf16(const char* a, const char* b, int c, std::uint32_t* to) {
    const __m512i zero = _mm512_setzero_si512();
    __m512i x = a == nullptr ? zero : _mm512_loadu_si512(a + 2 * columns * c);
    __m512i y = b == nullptr ? zero : _mm512_loadu_si512(b + 2 * columns * c);
    watch_.see(x);
    watch_.see(y);
    x = _mm512_permutexvar_epi64(spread(), x);
    y = _mm512_permutexvar_epi64(spread(), y);
    _mm512_store_si512(to, _mm512_unpacklo_epi16(x, y));
    _mm512_store_si512(to + tile_words, _mm512_unpackhi_epi16(x, y));
  }
  MSA_TILE_INLINE void pack_fp8(const char* a, const char* b, int c, std::uint32_t* to) {
    // Four elements a word: interleaved twice, bytes and then patterns, they end in order.
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i zero = _mm512_setzero_si512();
    __m512i x = a == nullptr ? zero : _mm512_loadu_si512(a + columns * c);
    __m512i y = b == nullptr ? zero : _mm512_loadu_si512(b + columns * c);
    largest_ =
        _mm512_max_epu8(largest_, _mm512_max_epu8(_mm512_add_epi8(x, x), _mm512_add_epi8(y, y)));
    x = _mm512_permutexvar_epi32(order, x);
    y = _mm512_permutexvar_epi32(order, y);
    const __m512i first = _mm512_unpacklo_epi8(x, y), second = _mm512_unpackhi_epi8(x, y);
    const __m512i first_low = bytes_.low(first), first_high = bytes_.high(first);
    const __m512i second_low = bytes_.low(second), second_high = bytes_.high(second);
    _mm512_store_si512(to, _mm512_unpacklo_epi8(first_low, first_high));
    _mm512_store_si512(to + tile_words, _mm512_unpackhi_epi8(first_low, first_high));
    to += column_words;
    _mm512_store_si512(to, _mm512_unpacklo_epi8(second_low, second_high));
    _mm512_store_si512(to + tile_words, _mm512_unpackhi_epi8(second_low, second_high));
  }

  CacheRows values_;
  Fp8Bytes bytes_;
  Watch watch_;
  __m512i largest_;
};

/// Columns of values that ValuePacker packs at once.
int packed_columns(CacheType type) { return type == CacheType::bf16 ? columns : 2 * columns; }

/// Leaves packed values of a key out.
void clear_value(std::uint32_t* v, int key) {
  const __m512i kept = _mm512_set1_epi32(key % 2 == 0 ? static_cast<int>(0xffff0000u) : 0xffff);
  for (int tile = 0; tile < head / tile_rows; ++tile) {
    std::uint32_t* words = pair_words(v, key / 2) + tile / 2 * column_words + tile % 2 * tile_words;
    _mm512_store_si512(words, _mm512_and_si512(kept, _mm512_load_si512(words)));
  }
}

// ---- softmax ----

/// Computes again what tiles may not: all logits of inexact rows, and those of exceptional keys.
void correct_logits(const KeySet& exceptional, const KeyTiles& keys, const AttendGroup& group,
                    unsigned inexact, const float* q, float* s) {
  if (inexact == 0 && exceptional.empty()) return;
  for (int r = 0; r < group.rows; ++r) {
    const bool all = (inexact >> r & 1) != 0;
    for (int key = 0; key < group.visible[r]; ++key) {
      if (!all && !exceptional.has(key)) continue;
      s[key * group_rows + r] = dot(q + (group.first + r) * head, keys.key(key));
    }
  }
}

/// 2^(2x) for x ≤ 0 in `lanes`, 0 elsewhere and below 2^-125; NaN stays NaN. As weight_of() of
/// cpu/attend-inl.h.
MSA_TILE_INLINE __m512 weight_of(__mmask16 lanes, __m512 x) {
  // Adding 1.5 · 2^23 leaves the nearest integer in the low mantissa bits.
  const __m512 shifter = _mm512_set1_ps(0x1.8p23f), two = _mm512_set1_ps(2.0f);
  const __m512 shifted = _mm512_fmadd_ps(x, two, shifter);
  const __m512 f = _mm512_fmsub_ps(x, two, _mm512_sub_ps(shifted, shifter));
  __m512 p = _mm512_set1_ps(1.535336188319500e-4f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.339887440266574e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.618437357674640e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550332471162809e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402264791363012e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472028550421e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  const __mmask16 weighs = _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(-62.5f), _CMP_NLT_UQ);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(weighs, _mm512_castps_si512(p), exponent));
}

/// One group's rows, a lane each.
struct Lanes {
  __m512i visible;
  __mmask16 chosen;  // rows that see a key
  int full;          // even number of keys that all of these see

  explicit Lanes(const AttendGroup& group)
      : visible(_mm512_load_si512(group.visible)),
        chosen(_mm512_cmpgt_epi32_mask(visible, _mm512_setzero_si512())),
        full(_mm512_mask_reduce_min_epi32(chosen, visible) & ~1) {}

  MSA_TILE_INLINE __mmask16 seeing(int key) const {
    return _mm512_cmpgt_epi32_mask(visible, _mm512_set1_epi32(key));
  }
};

/// Folds S^T into the rows' softmax: P comes out as operand A, rounded, and the factor by which
/// earlier results shrink.
void softmax(int keys, const AttendGroup& group, const AttendRows& rows, const float* s,
             std::uint32_t* p, float* shrink, Fetch& fetch) {
  const Lanes lanes(group);
  const auto logits = [&](int key) { return _mm512_load_ps(s + key * group_rows); };
  const __m512 minus_infinity = _mm512_set1_ps(-__builtin_inff());
  __m512 largest = minus_infinity, other = minus_infinity;
  int key = 0;
  for (; key < lanes.full; key += 2) {
    largest = _mm512_max_ps(largest, logits(key));
    other = _mm512_max_ps(other, logits(key + 1));
  }
  for (; key < keys; ++key) {
    largest = _mm512_mask_max_ps(largest, lanes.seeing(key), largest, logits(key));
  }
  largest = _mm512_max_ps(largest, other);

  const __m512 scale = _mm512_maskz_loadu_ps(lanes.chosen, rows.scale + group.first);
  const __m512 before =
      _mm512_mask_loadu_ps(minus_infinity, lanes.chosen, rows.maximum + group.first);
  const __m512 block_maximum = _mm512_mul_ps(largest, scale);
  const __mmask16 grows = _mm512_cmp_ps_mask(block_maximum, before, _CMP_GT_OQ);
  const __m512 after = _mm512_mask_mov_ps(before, grows, block_maximum);
  const __mmask16 none = _mm512_cmp_ps_mask(after, minus_infinity, _CMP_EQ_OQ);
  const __m512 shift = _mm512_mask_mov_ps(after, none, _mm512_setzero_ps());

  // Rounding keeps order, so that no product exceeds that of the largest: not fused.
  const auto weight = [&](__mmask16 visible, int at) {
    return weight_of(visible, _mm512_sub_ps(_mm512_mul_ps(logits(at), scale), shift));
  };
  const __m512i interleave =
      _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                       21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512 even_sum = _mm512_setzero_ps(), odd_sum = _mm512_setzero_ps();
  const auto pair = [&](__mmask16 even_visible, __mmask16 odd_visible, int at) {
    const __m512 even = weight(even_visible, at), odd = weight(odd_visible, at + 1);
    even_sum = _mm512_add_ps(even_sum, even);
    odd_sum = _mm512_add_ps(odd_sum, odd);
    const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
    return _mm512_permutexvar_epi16(interleave, both);
  };
  for (key = 0; key < keys; key += tile_depth) {
    __m512i words[tile_rows];
    if (key + tile_depth <= lanes.full) {
      for (int i = 0; i < tile_rows; ++i) {
        words[i] = pair(lanes.chosen, lanes.chosen, key + 2 * i);
      }
    } else {
      for (int i = 0; i < tile_rows; ++i) {
        const int at = key + 2 * i;
        words[i] = pair(lanes.seeing(at), lanes.seeing(at + 1), at);
      }
    }
    transpose(words, p + key / 2 * group_rows, tile_rows);
    fetch.rows(16);
  }

  const __m512 factor = weight_of(lanes.chosen, _mm512_sub_ps(before, shift));
  const __m512 sum = _mm512_maskz_loadu_ps(lanes.chosen, rows.sum + group.first);
  const __m512 added = _mm512_add_ps(even_sum, odd_sum);
  _mm512_mask_storeu_ps(rows.sum + group.first, lanes.chosen, _mm512_fmadd_ps(sum, factor, added));
  _mm512_mask_storeu_ps(rows.maximum + group.first, lanes.chosen, after);
  _mm512_store_ps(shrink, factor);
}

// ---- results ----

/// Element `i` of a row of the cache as a bf16 pattern.
unsigned pattern_at(CacheType type, const void* row, int i) {
  if (type == CacheType::bf16) return static_cast<const std::uint16_t*>(row)[i];
  const unsigned x = static_cast<const std::uint8_t*>(row)[i];
  const unsigned a = x & 0x7f;
  return (x & 0x80) << 8 | table_of(type).low[a] |
         static_cast<unsigned>(table_of(type).high[a]) << 8;
}

/// Adds the products with values that pass by the tiles.
void add_exceptional(const AttendBlock& block, const KeySet& values, const AttendGroup& group,
                     const std::uint32_t* p, float* o) {
  for (int key = 0; key < block.keys; ++key) {
    if (!values.has(key)) continue;
    alignas(64) std::uint16_t row[head];
    for (int i = 0; i < head; ++i) {
      row[i] = static_cast<std::uint16_t>(pattern_at(block.type, values_of(block).row(key), i));
    }
    for (int r = 0; r < group.rows; ++r) {
      if (key >= group.visible[r]) continue;
      const std::uint32_t word =
          p[key / tile_depth * tile_words + r * tile_rows + key % tile_depth / 2];
      const std::uint32_t bits = key % 2 == 0 ? word << 16 : word & 0xffff0000u;
      const __m512 weight = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(bits)));
      for (int i = 0; i < head; i += 16) {
        float* to = o + i / 16 * tile_words + r * 16;
        _mm512_store_ps(to, _mm512_fmadd_ps(weight, widen(row + i), _mm512_load_ps(to)));
      }
    }
  }
}

void add(const AttendGroup& group, const float* shrink, const float* o, float* out) {
  for (int r = 0; r < group.rows; ++r) {
    if (group.visible[r] == 0) continue;
    const __m512 factor = _mm512_set1_ps(shrink[r]);
    float* to = out + (group.first + r) * head;
    for (int i = 0; i < head; i += 16) {
      const __m512 sum = _mm512_fmadd_ps(_mm512_loadu_ps(to + i), factor,
                                         _mm512_load_ps(o + i / 16 * tile_words + r * 16));
      _mm512_storeu_ps(to + i, sum);
    }
  }
}

/// Logits to weights.
void weigh(const AttendBlock& block, const KeySet& odd_keys, const KeyTiles& keys,
           const AttendGroup& group, const AttendRows& rows, float* s, std::uint32_t* p,
           float* shrink, Fetch& fetch) {
  correct_logits(odd_keys, keys, group, rows.inexact[group.first / group_rows], rows.q, s);
  softmax(block.keys, group, rows, s, p, shrink, fetch);
}

/// A block that several groups chose: converted, then multiplied with each.
void attend_groups(const AttendBlock& block, const AttendGroup* groups, std::int64_t count,
                   const AttendRows& rows, Work& work, Fetch& fetch) {
  const CacheRows cached = keys_of(block);
  const int key_tiles = (block.keys + tile_rows - 1) / tile_rows;
  KeySet odd_keys;
  KeyTiles keys;
  if (block.type == CacheType::bf16) {
    odd_keys = watch_keys(cached, normal_keys, [&] { fetch.rows(1); });
    keys = tiles_in_place(cached, work.k);
  } else {
    convert_keys(cached, 0, key_tiles * tile_rows, work.k);
    keys = tiles_of(work.k, block.keys);
  }
  ValuePacker packer(block);
  for (int key = 0; key < packer.rows(); key += 2) {
    for (int c = 0; c < head; c += packed_columns(block.type)) {
      packer.pack_pair(c / columns, key, work.v + c / columns * column_words);
    }
    if (key % 4 == 2) fetch.rows(1);
  }
  const KeySet odd_values = packer.exceptional();
  for (int key = 0; key < block.keys; ++key) {
    if (odd_values.has(key)) clear_value(work.v, key);
  }
  // With AMX nothing is read just after it was written: between stand the products of a
  // neighbouring group.
  const auto logits = [&](std::int64_t g) {
    KeyProducts products[groups_at_once];
    int of = 0;
    for (; of < groups_at_once && g + of < count; ++of) {
      products[of] = {rows.q_tiles + groups[g + of].first * pairs, groups[g + of].rows, work.s[of]};
    }
    multiply_keys(keys, 0, key_tiles, products, of);
  };
  logits(0);
  for (std::int64_t g = 0; g < count; ++g) {
    float* shrink = work.shrink[g % 2];
    weigh(block, odd_keys, keys, groups[g], rows, work.s[g % groups_at_once], work.p, shrink,
          fetch);
    if (g > 0) add(groups[g - 1], work.shrink[(g - 1) % 2], work.o, rows.out);
    if (g + 1 < count && (g + 1) % groups_at_once == 0) logits(g + 1);
    multiply_values(whole_steps(block.keys), groups[g].rows, work.p, work.v, head, work.o);
    if (!odd_values.empty()) add_exceptional(block, odd_values, groups[g], work.p, work.o);
  }
  add(groups[count - 1], work.shrink[(count - 1) % 2], work.o, rows.out);
}

/// A block that one group chose.
void attend_group(const AttendBlock& block, const AttendGroup& group, const AttendRows& rows,
                  Work& work, Fetch& fetch) {
  const CacheRows cached = keys_of(block);
  const int key_tiles = (block.keys + tile_rows - 1) / tile_rows;
  const std::uint32_t* q = rows.q_tiles + group.first * pairs;
  KeySet odd_keys;
  KeyTiles keys;
  if (block.type == CacheType::bf16) {
    odd_keys = watch_keys(cached, normal_keys, [&] { fetch.rows(1); });
    keys = tiles_in_place(cached, work.k);
    const KeyProducts products{q, group.rows, work.s[0]};
    multiply_keys(keys, 0, key_tiles, &products, 1);
  } else {
    const bool kept = rows.inexact[group.first / group_rows] != 0;
    for (int first = 0; first < block.keys; first += streamed_keys) {
      const int last = first + streamed_keys < block.keys ? first + streamed_keys : block.keys;
      std::uint16_t* to = work.k + (kept ? first * head : 0);
      const int tiles = (last - first + tile_rows - 1) / tile_rows;
      convert_keys(cached, first, first + tiles * tile_rows, to);
      fetch.rows(16);
      const KeyProducts products{q, group.rows, work.s[0] + first * group_rows};
      multiply_keys(tiles_of(to, last - first), 0, tiles, &products, 1);
    }
    keys = tiles_of(work.k, block.keys);
  }
  weigh(block, odd_keys, keys, group, rows, work.s[0], work.p, work.shrink[0], fetch);
  ValuePacker packer(block);
  const int at_once = packed_columns(block.type);
  const int key_steps = whole_steps(block.keys);
  for (int c = 0; c < head; c += at_once) {
    packer.pack(c / columns, work.v);
    fetch.rows(at_once / 4);
    multiply_values(key_steps, group.rows, work.p, work.v, at_once,
                    work.o + c / tile_rows * tile_words);
  }
  const KeySet odd_values = packer.exceptional();
  if (!odd_values.empty()) {
    // Known too late: packed and multiplied once more, without them.
    for (int c = 0; c < head; c += at_once) {
      packer.pack(c / columns, work.v + c / columns * column_words);
    }
    for (int key = 0; key < block.keys; ++key) {
      if (odd_values.has(key)) clear_value(work.v, key);
    }
    multiply_values(key_steps, group.rows, work.p, work.v, head, work.o);
  }
  if (!odd_values.empty()) add_exceptional(block, odd_values, group, work.p, work.o);
  add(group, work.shrink[0], work.o, rows.out);
}

}  // namespace

std::uint16_t pack_queries(const float* q, const float* scale, int rows, std::uint32_t* q_tile) {
  constexpr float most_scale = 0x1p90f;
  constexpr int denormal = 0x20;  // of vfpclassps
  unsigned inexact = 0;
  for (int r = 0; r < rows; ++r) {
    unsigned found = scale[r] > most_scale;
    for (int i = 0; i < head; i += 16) {
      found |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(q + r * head + i), denormal);
    }
    if (found != 0) inexact |= 1u << r;
  }
  pack_rows(q, rows, q_tile);
  return static_cast<std::uint16_t>(inexact);
}

void fold_block(const AttendBlock& block, const AttendBlock& next, const AttendGroup* groups,
                std::int64_t count, const AttendRows& rows, void* memory) {
  Work& work = *static_cast<Work*>(memory);
  Fetch fetch(keys_of(next), values_of(next));
  if (count == 1) {
    attend_group(block, *groups, rows, work, fetch);
  } else {
    attend_groups(block, groups, count, rows, work, fetch);
  }
  fetch.rows(2 * page);
}

}  // namespace msa::cpu::tiles::MSA_TILE_ENGINE::attend
