// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Rows of a cache on their way to tiles: bf16 as it is, fp8 widened to bf16, which is exact.
/// Compiled once for each engine, MSA_TILE_ENGINE.
///
/// Tiles read denormal numbers as 0 and flush denormal results. Rows with elements for which that
/// could be seen, and values that are no numbers, are found here; whoever multiplies passes them by
/// the tiles.

#include <immintrin.h>

#include <cstdint>

#include "cpu/tiles/transpose-inl.h"
#include "cpu/tiles/types.h"

namespace msa::cpu::tiles::MSA_TILE_ENGINE {

inline constexpr int head = 128;                 // elements of a row
inline constexpr int page = 128;                 // keys of a block
inline constexpr int steps = head / tile_depth;  // products along a row
/// Columns of values that are packed together: a cache line of bf16.
inline constexpr int columns = 32;
inline constexpr int column_words = page / 2 * columns;

/// The rows of a block, as they lie in the cache.
struct CacheRows {
  CacheType type = CacheType::bf16;
  const void* data = nullptr;
  std::int64_t stride = 0;  // bytes
  int count = 0;            // at most 128

  const char* row(int i) const { return static_cast<const char*>(data) + i * stride; }
};

/// Rows of memory that will be needed soon, asked for a few at a time all along a block's work: a
/// page of a pool lies too far from the last one for the hardware to foresee it.
class Fetch {
 public:
  Fetch() = default;
  explicit Fetch(const CacheRows& rows)
      : row_(rows.row(0)), stride_(rows.stride), bytes_(row_bytes(rows)), left_(rows.count) {}
  /// Keys and values: one row after the other where they lie side by side, which the hardware
  /// recognizes and runs ahead of (decode of bf16 pages at 13 GB/s a core instead of 8).
  Fetch(const CacheRows& keys, const CacheRows& values) : Fetch(keys) {
    if (keys.count == 0) return;
    if (values.row(0) == row_ + bytes_ && values.stride == stride_) {
      bytes_ *= 2;
    } else {
      other_ = values;
    }
  }

  /// Asks for `count` rows more; two count as one where they lie side by side.
  MSA_TILE_INLINE void rows(int count) {
    for (; count > 0; --count) {
      if (left_ == 0) {
        if (other_.count == 0) return;
        *this = Fetch(other_);
      }
      for (int at = 0; at < bytes_; at += 64) _mm_prefetch(row_ + at, _MM_HINT_T1);
      row_ += stride_;
      --left_;
    }
  }

 private:
  static int row_bytes(const CacheRows& rows) {
    return rows.type == CacheType::bf16 ? 2 * head : head;
  }

  const char* row_ = nullptr;
  std::int64_t stride_ = 0;
  int bytes_ = 0, left_ = 0;
  CacheRows other_;
};

/// A set of a block's keys.
struct KeySet {
  std::uint64_t bits[2] = {0, 0};

  bool empty() const { return (bits[0] | bits[1]) == 0; }
  bool has(int key) const { return (bits[key / 64] >> (key % 64) & 1) != 0; }
  void add(int key) { bits[key / 64] |= std::uint64_t{1} << (key % 64); }
};

// ---- elements ----

/// fp8 magnitudes (the low seven bits) as the halves of bf16 patterns.
struct Table {
  alignas(64) std::uint8_t low[128];
  alignas(64) std::uint8_t high[128];
};

static constexpr Table table_of(int mantissa_bits, int bias, unsigned infinity, bool has_infinity) {
  Table table{};
  for (unsigned a = 0; a < 128; ++a) {
    unsigned mantissa = a & ((1u << mantissa_bits) - 1);
    int exponent = static_cast<int>(a >> mantissa_bits);
    unsigned pattern = 0;
    if (a >= infinity) {
      pattern = has_infinity && a == infinity ? 0x7f80 : 0x7fc0;
    } else if (a != 0) {
      if (exponent == 0) {
        exponent = 1;
        while (mantissa >> mantissa_bits == 0) {
          mantissa *= 2;
          --exponent;
        }
        mantissa -= 1u << mantissa_bits;
      }
      pattern = static_cast<unsigned>(exponent - bias + 127) << 7 | mantissa << (7 - mantissa_bits);
    }
    table.low[a] = static_cast<std::uint8_t>(pattern);
    table.high[a] = static_cast<std::uint8_t>(pattern >> 8);
  }
  return table;
}

inline constexpr Table e4m3_table = table_of(3, 7, 0x7f, false);
inline constexpr Table e5m2_table = table_of(2, 15, 0x7c, true);

static constexpr const Table& table_of(CacheType type) {
  return type == CacheType::e4m3 ? e4m3_table : e5m2_table;
}

/// Bytes of fp8 as bf16 patterns, low and high bytes apart.
class Fp8Bytes {
 public:
  explicit Fp8Bytes(CacheType type)
      : low0_(_mm512_load_si512(table_of(type).low)),
        low1_(_mm512_load_si512(table_of(type).low + 64)),
        high0_(_mm512_load_si512(table_of(type).high)),
        high1_(_mm512_load_si512(table_of(type).high + 64)) {}

  MSA_TILE_INLINE __m512i low(__m512i x) const { return _mm512_permutex2var_epi8(low0_, x, low1_); }
  MSA_TILE_INLINE __m512i high(__m512i x) const {
    const __m512i magnitude = _mm512_permutex2var_epi8(high0_, x, high1_);
    // magnitude | (x & sign)
    return _mm512_ternarylogic_epi32(magnitude, x, _mm512_set1_epi8(-128), 0xf8);
  }

 private:
  __m512i low0_, low1_, high0_, high1_;
};

/// 16 elements of bf16 as f32.
MSA_TILE_INLINE __m512 widen(const std::uint16_t* from) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/// The reordering of eight words after which interleaving low halves of 128-bit lanes gives the
/// first half of the elements in order, and high halves the second.
MSA_TILE_INLINE __m512i spread() { return _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0); }

// ---- exceptional rows ----

/// The exponent field of 2^e.
static constexpr unsigned exponent_field(int e) { return static_cast<unsigned>(e + 127); }

/// Which elements are normal: 0, and those with exponent fields from `least` up to `end`.
struct Normal {
  unsigned least, end;
};

/// Watches bf16 elements for exceptional ones, or for 0 in their place.
class Watch {
 public:
  explicit Watch(const Normal& normal)
      : offset_(_mm512_set1_epi16(static_cast<short>(-static_cast<int>(normal.least << 8)))),
        most_((normal.end << 8) - 1 - (normal.least << 8)),
        seen_(_mm512_setzero_si512()) {}

  MSA_TILE_INLINE void see(__m512i x) {
    seen_ = _mm512_max_epu16(seen_, _mm512_add_epi16(_mm512_add_epi16(x, x), offset_));
  }
  bool any() const {
    return _mm512_cmpgt_epu16_mask(seen_, _mm512_set1_epi16(static_cast<short>(most_))) != 0;
  }

 private:
  __m512i offset_;
  unsigned most_;
  __m512i seen_;
};

/// The bf16 rows with an element that is not normal: what Watch leaves open. Activations may have a
/// 0 in every row, so this is vector code too.
static KeySet find_exceptional_bf16(const CacheRows& rows, const Normal& normal) {
  const __m512i magnitude = _mm512_set1_epi16(0x7fff), one = _mm512_set1_epi16(1);
  // x − 1 wraps 0 around, past all others.
  const __m512i least = _mm512_set1_epi16(static_cast<short>((normal.least << 7) - 1));
  const __m512i end = _mm512_set1_epi16(static_cast<short>(normal.end << 7));
  KeySet set;
  for (int key = 0; key < rows.count; ++key) {
    unsigned found = 0;
    for (int i = 0; i < head; i += 32) {
      const __m512i x = _mm512_and_si512(_mm512_loadu_si512(rows.row(key) + 2 * i), magnitude);
      found |= _mm512_cmplt_epu16_mask(_mm512_sub_epi16(x, one), least);
      found |= _mm512_cmpge_epu16_mask(x, end);
    }
    if (found != 0) set.add(key);
  }
  return set;
}

/// The fp8 rows with an element that is no number; none of their numbers is tiny or huge in bf16.
static KeySet find_no_numbers_fp8(const CacheRows& rows) {
  const int first = rows.type == CacheType::e4m3 ? 0xfe : 0xf8;  // without its sign, shifted
  const __m512i no_number = _mm512_set1_epi8(static_cast<char>(first));
  KeySet set;
  for (int key = 0; key < rows.count; ++key) {
    const __m512i x = _mm512_loadu_si512(rows.row(key)), y = _mm512_loadu_si512(rows.row(key) + 64);
    const __m512i largest = _mm512_max_epu8(_mm512_add_epi8(x, x), _mm512_add_epi8(y, y));
    if (_mm512_cmpge_epu8_mask(largest, no_number) != 0) set.add(key);
  }
  return set;
}

// ---- values: operand B ----

/// Where pair `pair` of keys has its 16 words of the first of two tiles of columns: packed values
/// lie as [pairs of columns][4 steps][2][16][16] pairs of keys.
static std::uint32_t* pair_words(std::uint32_t* v, int pair) {
  return v + (pair / tile_rows * 2 * tile_rows + pair % tile_rows) * tile_rows;
}

// ---- keys: operand A ----

/// Tiles of 16 keys, [16][128] bf16 each: operand A.
struct KeyTiles {
  const void* data[page / tile_rows];
  std::int64_t stride[page / tile_rows];  // bytes between rows

  /// Elements of key `key`.
  const std::uint16_t* key(int key) const {
    const char* tile = static_cast<const char*>(data[key / tile_rows]);
    return reinterpret_cast<const std::uint16_t*>(tile + key % tile_rows * stride[key / tile_rows]);
  }
};

static void zero_rows(int begin, int end, std::uint16_t* to) {
  for (int i = begin * head; i < end * head; i += 32) {
    _mm512_store_si512(to + i, _mm512_setzero_si512());
  }
}

/// fp8 keys [begin, end) as bf16 rows, those past the last one 0.
static void convert_keys(const CacheRows& keys, int begin, int end, std::uint16_t* to) {
  const Fp8Bytes bytes(keys.type);
  const int last = keys.count < end ? keys.count : end;
  for (int key = begin; key < last; ++key) {
    const char* row = keys.row(key);
    std::uint16_t* out = to + (key - begin) * head;
    for (int i = 0; i < head; i += 64) {
      const __m512i x = _mm512_permutexvar_epi64(spread(), _mm512_loadu_si512(row + i));
      const __m512i low = bytes.low(x), high = bytes.high(x);
      _mm512_store_si512(out + i, _mm512_unpacklo_epi8(low, high));
      _mm512_store_si512(out + i + 32, _mm512_unpackhi_epi8(low, high));
    }
  }
  zero_rows(last - begin, end - begin, to);
}

/// Looks at bf16 keys, which thereby come near: returns the exceptional ones. `between()` is called
/// once every four keys.
template <class Between>
static KeySet watch_keys(const CacheRows& keys, const Normal& normal, Between&& between) {
  Watch watch(normal);
  for (int key = 0; key < keys.count; ++key) {
    const char* row = keys.row(key);
    for (int i = 0; i < 2 * head; i += 64) watch.see(_mm512_loadu_si512(row + i));
    if (key % 4 == 3) between();
  }
  return watch.any() ? find_exceptional_bf16(keys, normal) : KeySet();
}

/// bf16 keys where they lie; the last tile, where it is not whole, in `rest` [16][128] with zeros:
/// what lies past the last key is not the request's.
static KeyTiles tiles_in_place(const CacheRows& keys, std::uint16_t* rest) {
  KeyTiles tiles;
  const int whole = keys.count / tile_rows;
  for (int t = 0; t < whole; ++t) {
    tiles.data[t] = keys.row(t * tile_rows);
    tiles.stride[t] = keys.stride;
  }
  if (keys.count % tile_rows == 0) return tiles;
  tiles.data[whole] = rest;
  tiles.stride[whole] = std::int64_t{2} * head;
  for (int key = whole * tile_rows; key < keys.count; ++key) {
    for (int i = 0; i < head; i += 32) {
      _mm512_store_si512(rest + (key - whole * tile_rows) * head + i,
                         _mm512_loadu_si512(keys.row(key) + 2 * i));
    }
  }
  zero_rows(keys.count % tile_rows, tile_rows, rest);
  return tiles;
}

/// What keys are multiplied with, and where their products go.
struct KeyProducts {
  const std::uint32_t* q;  // a group's rows: [4 steps][16][16] pairs
  int rows;  // that exist, or more than 16; products of the others need not be written
  float* s;  // S^T [128][16 rows]
};

/// Tiles of converted keys.
static KeyTiles tiles_of(const std::uint16_t* keys, int count) {
  KeyTiles tiles;
  for (int t = 0; t * tile_rows < count; ++t) {
    tiles.data[t] = keys + t * tile_rows * head;
    tiles.stride[t] = std::int64_t{2} * head;
  }
  return tiles;
}

/// The dot product of a row of f32 with a key, without tiles.
static float dot(const float* q, const std::uint16_t* key) {
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < head; i += 16) {
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(q + i), widen(key + i), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

// ---- rows of q: operand B ----

/// 16 rows of q [16][128], `rows` of which exist, as pairs of bf16: [64][16].
static void pack_rows(const float* q, int rows, std::uint32_t* to) {
  constexpr int pairs = head / 2;
  alignas(64) std::uint32_t words[tile_rows * pairs];
  for (int r = 0; r < tile_rows; ++r) {
    for (int i = 0; i < head; i += 32) {
      const bool exists = r < rows;
      const __m512 a = exists ? _mm512_loadu_ps(q + r * head + i) : _mm512_setzero_ps();
      const __m512 b = exists ? _mm512_loadu_ps(q + r * head + i + 16) : _mm512_setzero_ps();
      const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
      _mm512_store_si512(words + r * pairs + i / 2, both);
    }
  }
  for (int i = 0; i < pairs; i += tile_rows) {
    transpose(words + i, pairs, to + i * tile_rows, tile_rows);
  }
}

}  // namespace msa::cpu::tiles::MSA_TILE_ENGINE
