// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/attend_amx_kernel.h"

#include <immintrin.h>

#include "cpu/amx.h"

/// \file
/// attend on tiles: logits come out transposed, S^T[keys][16 rows] = K · Q^T, so that keys are
/// operand A as they lie in a bf16 cache, and softmax has one row a lane and no reductions across
/// lanes. P is transposed back (a word holds two keys' weights, half the work) and meets V, whose
/// rows are interleaved in pairs.
///
/// A row's bits depend on its q, its keys and its values alone: a tile's rows do not mix, and what
/// a row does not see has weight 0 and values that are finite.
///
/// Tiles read denormal numbers as 0 and flush denormal sums. Where that could be seen, the
/// **exceptional** rows, keys and values, each known by its own elements, pass by the tiles: their
/// products are f32 multiply-adds, as in cpu/attend-inl.h. Values that are no numbers do so too, as
/// 0 · NaN would reach every row of a tile.

namespace msa::cpu::amx {
namespace {

constexpr int head = 128;  // elements of a row
constexpr int page = 128;  // keys of a block
constexpr int pairs = head / 2;
constexpr int key_tiles = page / tile_rows;
constexpr int steps = head / tile_depth;  // products along a row
constexpr int together = 2;               // groups that share what they load

/// Where the working memory holds what.
struct Work {
  alignas(64) std::uint16_t k[page * head];  // fp8 keys as bf16; of bf16 keys the last tile
  std::uint32_t v[page / 2 * head];          // pairs of neighbouring keys
  float s[together][page * group_rows];      // S^T
  std::uint32_t pt[page / 2 * group_rows];   // P^T, pairs of keys
  std::uint32_t p[together][group_rows * page / 2];
  float o[together][group_rows * head];  // P · V of the block
  float shrink[together][group_rows];
};
static_assert(sizeof(Work) <= attend_work_bytes, "the working memory has room for all of it");

/// Rows of memory that will be needed soon, asked for a few at a time all along a block's work: a
/// page of a pool lies too far from the last one for the hardware to foresee it.
class Fetch {
 public:
  explicit Fetch(const AttendBlock& next)
      : row_(static_cast<const char*>(next.k)),
        other_(static_cast<const char*>(next.v)),
        stride_(next.k_stride),
        other_stride_(next.v_stride),
        bytes_(next.type == CacheType::bf16 ? 2 * head : head),
        keys_(next.keys),
        left_(next.keys) {}

  MSA_AMX_INLINE void rows(int count) {
    for (; count > 0; --count) {
      if (left_ == 0) {
        if (other_ == nullptr) return;
        row_ = other_;
        stride_ = other_stride_;
        left_ = keys_;
        other_ = nullptr;
        if (left_ == 0) return;
      }
      for (int at = 0; at < bytes_; at += 64) _mm_prefetch(row_ + at, _MM_HINT_T1);
      row_ += stride_;
      --left_;
    }
  }

 private:
  const char* row_;
  const char* other_;
  std::int64_t stride_, other_stride_;
  int bytes_, keys_, left_;
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

constexpr Table table_of(int mantissa_bits, int bias, unsigned infinity, bool has_infinity) {
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

constexpr Table e4m3_table = table_of(3, 7, 0x7f, false);
constexpr Table e5m2_table = table_of(2, 15, 0x7c, true);

constexpr const Table& table_of(CacheType type) {
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

  MSA_AMX_INLINE __m512i low(__m512i x) const { return _mm512_permutex2var_epi8(low0_, x, low1_); }
  MSA_AMX_INLINE __m512i high(__m512i x) const {
    const __m512i magnitude = _mm512_permutex2var_epi8(high0_, x, high1_);
    // magnitude | (x & sign)
    return _mm512_ternarylogic_epi32(magnitude, x, _mm512_set1_epi8(-128), 0xf8);
  }

 private:
  __m512i low0_, low1_, high0_, high1_;
};

/// Element `i` of a row of the cache as a bf16 pattern.
unsigned pattern_at(CacheType type, const void* row, int i) {
  if (type == CacheType::bf16) return static_cast<const std::uint16_t*>(row)[i];
  const unsigned x = static_cast<const std::uint8_t*>(row)[i];
  const unsigned a = x & 0x7f;
  return (x & 0x80) << 8 | table_of(type).low[a] |
         static_cast<unsigned>(table_of(type).high[a]) << 8;
}

const char* row_of(const void* rows, std::int64_t stride, int key) {
  return static_cast<const char*>(rows) + key * stride;
}

/// 16 elements of bf16 as f32.
MSA_AMX_INLINE __m512 widen(const std::uint16_t* from) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/// The reordering of eight words after which interleaving low halves of 128-bit lanes gives the
/// first half of the elements in order, and high halves the second.
MSA_AMX_INLINE __m512i spread() { return _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0); }

// ---- exceptional keys and values ----

/// Exponents below 2^-100 of values: their products with weights may be flushed.
constexpr unsigned small_exponent = 27;

/// Watches bf16 rows for elements that are exceptional, or 0 in place of denormal.
class Watch {
 public:
  /// Normal are exponent fields from `least` to 254, or all from there on.
  Watch(unsigned least, bool any_above)
      : offset_(_mm512_set1_epi16(static_cast<short>(-static_cast<int>(least << 8)))),
        most_(any_above ? 0xffffu - (least << 8) : 0xfeffu - (least << 8)),
        seen_(_mm512_setzero_si512()) {}

  MSA_AMX_INLINE void see(__m512i x) {
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

/// Keys with a denormal element. fp8 has none in bf16.
KeySet find_exceptional_keys(const AttendBlock& block) {
  KeySet set;
  for (int key = 0; key < block.keys; ++key) {
    const void* row = row_of(block.k, block.k_stride, key);
    for (int i = 0; i < head; ++i) {
      const unsigned a = pattern_at(block.type, row, i) & 0x7fff;
      if (a != 0 && a < 0x80) set.add(key);
    }
  }
  return set;
}

/// Keys with a value that is tiny or no number.
KeySet find_exceptional_values(const AttendBlock& block) {
  KeySet set;
  for (int key = 0; key < block.keys; ++key) {
    const void* row = row_of(block.v, block.v_stride, key);
    for (int i = 0; i < head; ++i) {
      const unsigned a = pattern_at(block.type, row, i) & 0x7fff;
      if (a >= 0x7f80 || (a != 0 && a < small_exponent << 7)) set.add(key);
    }
  }
  return set;
}

// ---- keys ----

/// The block's keys as tiles of operand A.
struct KeyTiles {
  const void* data[key_tiles];
  std::int64_t stride[key_tiles];
  int count = 0;
  KeySet exceptional;

  /// Key `key` as bf16.
  const std::uint16_t* key(int key) const {
    const char* tile = static_cast<const char*>(data[key / tile_rows]);
    return reinterpret_cast<const std::uint16_t*>(tile + key % tile_rows * stride[key / tile_rows]);
  }
};

void convert_keys(const AttendBlock& block, Work& work) {
  const Fp8Bytes bytes(block.type);
  for (int key = 0; key < block.keys; ++key) {
    const char* row = row_of(block.k, block.k_stride, key);
    std::uint16_t* to = work.k + key * head;
    for (int i = 0; i < head; i += 64) {
      const __m512i x = _mm512_permutexvar_epi64(spread(), _mm512_loadu_si512(row + i));
      const __m512i low = bytes.low(x), high = bytes.high(x);
      _mm512_store_si512(to + i, _mm512_unpacklo_epi8(low, high));
      _mm512_store_si512(to + i + 32, _mm512_unpackhi_epi8(low, high));
    }
  }
}

/// Rows of the last tile past the last key become 0: what lies there is not the request's.
void clear_rest(int keys, Work& work) {
  for (int key = keys; key % tile_rows != 0; ++key) {
    for (int i = 0; i < head; i += 32) {
      _mm512_store_si512(work.k + key * head + i, _mm512_setzero_si512());
    }
  }
}

KeyTiles tiles_of_keys(const AttendBlock& block, Work& work) {
  KeyTiles tiles;
  tiles.count = (block.keys + tile_rows - 1) / tile_rows;
  const int whole = block.keys / tile_rows;
  const bool converted = block.type != CacheType::bf16;
  for (int t = 0; t < tiles.count; ++t) {
    const bool copied = converted || t == whole;
    tiles.data[t] = copied
                        ? work.k + t * tile_rows * head
                        : static_cast<const void*>(row_of(block.k, block.k_stride, t * tile_rows));
    tiles.stride[t] = copied ? std::int64_t{2} * head : block.k_stride;
  }
  if (converted) {
    convert_keys(block, work);
  } else {
    Watch watch(1, true);
    for (int key = 0; key < block.keys; ++key) {
      const char* row = row_of(block.k, block.k_stride, key);
      for (int i = 0; i < head; i += 32) {
        const __m512i x = _mm512_loadu_si512(row + 2 * i);
        watch.see(x);
        if (key >= whole * tile_rows) _mm512_store_si512(work.k + key * head + i, x);
      }
    }
    if (watch.any()) tiles.exceptional = find_exceptional_keys(block);
  }
  clear_rest(block.keys, work);
  return tiles;
}

// ---- values ----

MSA_AMX_INLINE void pack_pair_bf16(const void* a, const void* b, std::uint32_t* to, Watch& watch) {
  for (int i = 0; i < head; i += 32) {
    __m512i x = a == nullptr ? _mm512_setzero_si512()
                             : _mm512_loadu_si512(static_cast<const std::uint16_t*>(a) + i);
    __m512i y = b == nullptr ? _mm512_setzero_si512()
                             : _mm512_loadu_si512(static_cast<const std::uint16_t*>(b) + i);
    watch.see(x);
    watch.see(y);
    x = _mm512_permutexvar_epi64(spread(), x);
    y = _mm512_permutexvar_epi64(spread(), y);
    _mm512_store_si512(to + i, _mm512_unpacklo_epi16(x, y));
    _mm512_store_si512(to + i + 16, _mm512_unpackhi_epi16(x, y));
  }
}

MSA_AMX_INLINE void pack_pair_fp8(const Fp8Bytes& bytes, const void* a, const void* b,
                                  std::uint32_t* to, __m512i& largest) {
  // Four elements a word: interleaved twice, bytes and then patterns, they end in order.
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  for (int i = 0; i < head; i += 64) {
    __m512i x = a == nullptr ? _mm512_setzero_si512()
                             : _mm512_loadu_si512(static_cast<const std::uint8_t*>(a) + i);
    __m512i y = b == nullptr ? _mm512_setzero_si512()
                             : _mm512_loadu_si512(static_cast<const std::uint8_t*>(b) + i);
    largest =
        _mm512_max_epu8(largest, _mm512_max_epu8(_mm512_add_epi8(x, x), _mm512_add_epi8(y, y)));
    x = _mm512_permutexvar_epi32(order, x);
    y = _mm512_permutexvar_epi32(order, y);
    const __m512i first = _mm512_unpacklo_epi8(x, y), second = _mm512_unpackhi_epi8(x, y);
    const __m512i first_low = bytes.low(first), first_high = bytes.high(first);
    const __m512i second_low = bytes.low(second), second_high = bytes.high(second);
    _mm512_store_si512(to + i, _mm512_unpacklo_epi8(first_low, first_high));
    _mm512_store_si512(to + i + 16, _mm512_unpackhi_epi8(first_low, first_high));
    _mm512_store_si512(to + i + 32, _mm512_unpacklo_epi8(second_low, second_high));
    _mm512_store_si512(to + i + 48, _mm512_unpackhi_epi8(second_low, second_high));
  }
}

/// Packs the values as operand B, up to a whole step of keys, and returns those that are left out.
KeySet pack_values(const AttendBlock& block, Work& work, Fetch& fetch) {
  const int rows = (block.keys + tile_depth - 1) / tile_depth * tile_depth;
  const auto row = [&](int key) -> const void* {
    return key < block.keys ? row_of(block.v, block.v_stride, key) : nullptr;
  };
  bool any = false;
  if (block.type == CacheType::bf16) {
    Watch watch(small_exponent, false);
    for (int key = 0; key < rows; key += 2) {
      pack_pair_bf16(row(key), row(key + 1), work.v + key / 2 * head, watch);
      fetch.rows(1);
    }
    any = watch.any();
  } else {
    const Fp8Bytes bytes(block.type);
    __m512i largest = _mm512_setzero_si512();
    for (int key = 0; key < rows; key += 2) {
      pack_pair_fp8(bytes, row(key), row(key + 1), work.v + key / 2 * head, largest);
      fetch.rows(1);
    }
    const int first = block.type == CacheType::e4m3 ? 0xfe : 0xf8;  // no numbers, shifted
    any = _mm512_cmpge_epu8_mask(largest, _mm512_set1_epi8(static_cast<char>(first))) != 0;
  }
  if (!any) return {};
  const KeySet set = find_exceptional_values(block);
  for (int key = 0; key < block.keys; ++key) {
    if (!set.has(key)) continue;
    const __m512i kept = _mm512_set1_epi32(key % 2 == 0 ? static_cast<int>(0xffff0000u) : 0xffff);
    for (int i = 0; i < head; i += 16) {
      std::uint32_t* words = work.v + key / 2 * head + i;
      _mm512_store_si512(words, _mm512_and_si512(kept, _mm512_load_si512(words)));
    }
  }
  return set;
}

// ---- logits ----

/// S^T of `tiles` neighbouring tiles of keys and `count` groups.
template <int count, int tiles>
MSA_AMX_INLINE void multiply_keys(const KeyTiles& keys, int t, const std::uint32_t* const* q,
                                  float* const* s) {
  zero<0>();
  if constexpr (tiles == 2) zero<1>();
  if constexpr (count == 2) zero<2>();
  if constexpr (count == 2 && tiles == 2) zero<3>();
  for (int i = 0; i < steps; ++i) {
    const std::int64_t word = i * tile_depth / 2;
    load<4>(static_cast<const std::uint32_t*>(keys.data[t]) + word, keys.stride[t]);
    load<6>(q[0] + word * group_rows, 64);
    multiply<0, 4, 6>();
    if constexpr (tiles == 2) {
      load<5>(static_cast<const std::uint32_t*>(keys.data[t + 1]) + word, keys.stride[t + 1]);
      multiply<1, 5, 6>();
    }
    if constexpr (count == 2) {
      load<7>(q[1] + word * group_rows, 64);
      multiply<2, 4, 7>();
    }
    if constexpr (count == 2 && tiles == 2) multiply<3, 5, 7>();
  }
  constexpr int tile_floats = tile_rows * group_rows;
  store<0>(s[0] + t * tile_floats, 64);
  if constexpr (tiles == 2) store<1>(s[0] + (t + 1) * tile_floats, 64);
  if constexpr (count == 2) store<2>(s[1] + t * tile_floats, 64);
  if constexpr (count == 2 && tiles == 2) store<3>(s[1] + (t + 1) * tile_floats, 64);
}

template <int count>
void compute_logits(const KeyTiles& keys, const std::uint32_t* const* q, float* const* s,
                    Fetch& fetch) {
  int t = 0;
  for (; t + 2 <= keys.count; t += 2) {
    multiply_keys<count, 2>(keys, t, q, s);
    fetch.rows(16);
  }
  if (t < keys.count) multiply_keys<count, 1>(keys, t, q, s);
}

/// One logit without tiles.
float dot(const float* q, const std::uint16_t* key) {
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < head; i += 16) {
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(q + i), widen(key + i), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

/// Computes again what tiles may not: all logits of inexact rows, and those of exceptional keys.
void correct_logits(const KeyTiles& keys, const AttendGroup& group, unsigned inexact,
                    const float* q, float* s) {
  if (inexact == 0 && keys.exceptional.empty()) return;
  for (int r = 0; r < group.rows; ++r) {
    const bool all = (inexact >> r & 1) != 0;
    for (int key = 0; key < group.visible[r]; ++key) {
      if (!all && !keys.exceptional.has(key)) continue;
      s[key * group_rows + r] = dot(q + (group.first + r) * head, keys.key(key));
    }
  }
}

// ---- softmax ----

/// 2^(2x) for x ≤ 0 in `lanes`, 0 elsewhere and below 2^-125; NaN stays NaN. As weight_of() of
/// cpu/attend-inl.h.
MSA_AMX_INLINE __m512 weight_of(__mmask16 lanes, __m512 x) {
  x = _mm512_add_ps(x, x);
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(1.535336188319500e-4f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.339887440266574e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.618437357674640e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550332471162809e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402264791363012e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472028550421e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  const __mmask16 weighs = _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(weighs, p, n);
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

  MSA_AMX_INLINE __mmask16 seeing(int key) const {
    return _mm512_cmpgt_epi32_mask(visible, _mm512_set1_epi32(key));
  }
};

/// Folds S^T into the rows' softmax: P comes out as operand A, rounded; `shrink` is the factor of
/// earlier results.
void softmax(const float* s, int keys, const AttendGroup& group, const AttendRows& rows, Work& work,
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
    _mm512_store_si512(work.pt + at / 2 * group_rows, _mm512_permutexvar_epi16(interleave, both));
  };
  const int end = (keys + tile_depth - 1) / tile_depth * tile_depth;
  for (key = 0; key < lanes.full; key += 2) {
    pair(lanes.chosen, lanes.chosen, key);
    fetch.rows(1);
  }
  for (; key < end; key += 2) {
    pair(lanes.seeing(key), lanes.seeing(key + 1), key);
    fetch.rows(1);
  }
  for (int at = 0; at < end / 2; at += 16) {
    transpose(work.pt + at * group_rows, group_rows, p + at, page / 2);
  }

  const __m512 factor = weight_of(lanes.chosen, _mm512_sub_ps(before, shift));
  const __m512 sum = _mm512_maskz_loadu_ps(lanes.chosen, rows.sum + group.first);
  const __m512 added = _mm512_add_ps(even_sum, odd_sum);
  _mm512_mask_storeu_ps(rows.sum + group.first, lanes.chosen, _mm512_fmadd_ps(sum, factor, added));
  _mm512_mask_storeu_ps(rows.maximum + group.first, lanes.chosen, after);
  _mm512_store_ps(shrink, factor);
}

// ---- results ----

template <int count>
void multiply_values(const std::uint32_t (*p)[group_rows * page / 2], const std::uint32_t* v,
                     int key_steps, float (*o)[group_rows * head], Fetch& fetch) {
  constexpr std::int64_t p_stride = 2 * page, row_stride = 4 * head;  // bytes
  for (int d = 0; d < head; d += 32) {
    zero<0>();
    zero<1>();
    if constexpr (count == 2) {
      zero<2>();
      zero<3>();
    }
    for (int i = 0; i < key_steps; ++i) {
      const std::uint32_t* words = v + i * tile_rows * head + d;
      load<4>(p[0] + i * tile_rows, p_stride);
      load<6>(words, row_stride);
      multiply<0, 4, 6>();
      load<7>(words + 16, row_stride);
      multiply<1, 4, 7>();
      if constexpr (count == 2) {
        load<5>(p[1] + i * tile_rows, p_stride);
        multiply<2, 5, 6>();
        multiply<3, 5, 7>();
      }
      fetch.rows(4);
    }
    store<0>(o[0] + d, row_stride);
    store<1>(o[0] + d + 16, row_stride);
    if constexpr (count == 2) {
      store<2>(o[1] + d, row_stride);
      store<3>(o[1] + d + 16, row_stride);
    }
  }
}

/// Adds the products with values that pass by the tiles.
void add_exceptional(const AttendBlock& block, const KeySet& values, const AttendGroup& group,
                     const std::uint32_t* p, float* o) {
  for (int key = 0; key < block.keys; ++key) {
    if (!values.has(key)) continue;
    alignas(64) std::uint16_t row[head];
    for (int i = 0; i < head; ++i) {
      row[i] = static_cast<std::uint16_t>(
          pattern_at(block.type, row_of(block.v, block.v_stride, key), i));
    }
    for (int r = 0; r < group.rows; ++r) {
      if (key >= group.visible[r]) continue;
      const std::uint32_t word = p[r * page / 2 + key / 2];
      const std::uint32_t bits = key % 2 == 0 ? word << 16 : word & 0xffff0000u;
      const __m512 weight = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(bits)));
      for (int i = 0; i < head; i += 16) {
        float* to = o + r * head + i;
        _mm512_store_ps(to, _mm512_fmadd_ps(weight, widen(row + i), _mm512_load_ps(to)));
      }
    }
  }
}

void add_results(const AttendGroup& group, const float* shrink, const float* o, float* out) {
  for (int r = 0; r < group.rows; ++r) {
    if (group.visible[r] == 0) continue;
    const __m512 factor = _mm512_set1_ps(shrink[r]);
    float* to = out + (group.first + r) * head;
    for (int i = 0; i < head; i += 16) {
      const __m512 sum =
          _mm512_fmadd_ps(_mm512_loadu_ps(to + i), factor, _mm512_load_ps(o + r * head + i));
      _mm512_storeu_ps(to + i, sum);
    }
  }
}

template <int count>
void attend_groups(const AttendBlock& block, const KeyTiles& keys, const KeySet& values,
                   const AttendGroup* groups, const AttendRows& rows, Work& work, Fetch& fetch) {
  const std::uint32_t* q[count];
  float* s[count];
  for (int g = 0; g < count; ++g) {
    q[g] = rows.q_tiles + groups[g].first * pairs;
    s[g] = work.s[g];
  }
  compute_logits<count>(keys, q, s, fetch);
  for (int g = 0; g < count; ++g) {
    correct_logits(keys, groups[g], rows.inexact[groups[g].first / group_rows], rows.q, s[g]);
    softmax(s[g], block.keys, groups[g], rows, work, work.p[g], work.shrink[g], fetch);
  }
  multiply_values<count>(work.p, work.v, (block.keys + tile_depth - 1) / tile_depth, work.o, fetch);
  for (int g = 0; g < count; ++g) {
    if (!values.empty()) add_exceptional(block, values, groups[g], work.p[g], work.o[g]);
    add_results(groups[g], work.shrink[g], work.o[g], rows.out);
  }
}

}  // namespace

void begin_tiles() { configure_tiles(); }
void end_tiles() { release_tiles(); }

std::uint16_t pack_queries(const float* q, const float* scale, int rows, std::uint32_t* q_tile) {
  constexpr float most_scale = 0x1p90f;
  constexpr int denormal = 0x20;  // of vfpclassps
  alignas(64) std::uint32_t words[group_rows * pairs];
  unsigned inexact = 0;
  for (int r = 0; r < group_rows; ++r) {
    for (int i = 0; i < head; i += 32) {
      const bool exists = r < rows;
      const __m512 a = exists ? _mm512_loadu_ps(q + r * head + i) : _mm512_setzero_ps();
      const __m512 b = exists ? _mm512_loadu_ps(q + r * head + i + 16) : _mm512_setzero_ps();
      const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
      _mm512_store_si512(words + r * pairs + i / 2, both);
      const int found = _mm512_fpclass_ps_mask(a, denormal) | _mm512_fpclass_ps_mask(b, denormal);
      if (found != 0) inexact |= 1u << r;
    }
    if (r < rows && scale[r] > most_scale) inexact |= 1u << r;
  }
  for (int i = 0; i < pairs; i += 16) {
    transpose(words + i, pairs, q_tile + i * group_rows, group_rows);
  }
  return static_cast<std::uint16_t>(inexact);
}

void attend_block(const AttendBlock& block, const AttendBlock& next, const AttendGroup* groups,
                  std::int64_t count, const AttendRows& rows, void* memory) {
  Work& work = *static_cast<Work*>(memory);
  Fetch fetch(next);
  const KeyTiles keys = tiles_of_keys(block, work);
  const KeySet values = pack_values(block, work, fetch);
  std::int64_t g = 0;
  for (; g + together <= count; g += together) {
    attend_groups<together>(block, keys, values, groups + g, rows, work, fetch);
  }
  if (g < count) attend_groups<1>(block, keys, values, groups + g, rows, work, fetch);
  fetch.rows(2 * page);
}

}  // namespace msa::cpu::amx
