// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/index_kernel.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "cpu/isa.h"
#include "cpu/tiles/index.h"
#include "cpu/tiles/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/index_kernel.cpp"
#include "hwy/foreach_target.h"
//
#include "cpu/convert-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));
constexpr std::int64_t panel_keys = 2 * lanes;  // keys that a register tile covers
constexpr std::int64_t tile_rows = 6;           // 12 accumulators, 2 keys vectors, 1 query
constexpr float negative_infinity = -std::numeric_limits<float>::infinity();

/// Where a tile's scratch memory holds what.
struct Scratch {
  Scratch(float* memory, std::int64_t rows)
      : queries(memory),
        keys(queries + rows * head_dim),
        best(keys + page_size * head_dim),
        nan(best + rows * lanes),
        copy(nan + rows * lanes) {}

  float* queries;  // [rows][128]
  float* keys;     // [128 / panel_keys][128][panel_keys]
  float* best;     // [rows][lanes]: running maxima
  float* nan;      // [rows][lanes]: all ones where a product was NaN
  float* copy;     // [128][128] of the key type: a page with its unreadable rows zeroed
};

// ---- keys as vectors ----

/// Vectors of f32 that one vector of 32-bit words holds.
template <DType type>
constexpr int parts = static_cast<int>(sizeof(float) / sizeof(Storage<type>));

/// Whether NaN patterns are looked for. Only e4m3 has any to lose: its fast path reads NaN as ±480,
/// and a block in which one was seen is done again.
enum class Nans { ignored, kept };

/// Element `part` of each 32-bit word.
template <DType type, Nans nans, int part>
HWY_INLINE VF unpack(VU words) {
  const F32 df;
  const U32 du;
  if constexpr (type == DType::bf16) {
    return hn::BitCast(
        df, part == 0 ? hn::ShiftLeft<16>(words) : hn::And(words, hn::Set(du, 0xffff0000u)));
  } else {
    // The byte's sign and 7 bits under f32's sign, lowest exponent and highest mantissa bits make
    // its value times 2^-120; NaN alone becomes ±480.
    const hn::RebindToSigned<F32> di;
    const auto top = hn::BitCast(di, hn::ShiftLeft<24 - 8 * part>(words));
    const VU bits = hn::And(hn::BitCast(du, hn::ShiftRight<4>(top)), hn::Set(du, 0x87f00000u));
    const VF x = hn::Mul(hn::BitCast(df, bits), hn::Set(df, 0x1p120f));
    if constexpr (nans == Nans::ignored) return x;
    return hn::IfThenElse(hn::Eq(hn::Abs(x), hn::Set(df, 480.0f)), hn::NaN(df), x);
  }
}

/// Bytes of e4m3 NaN met so far, as nonzero bytes.
template <DType type, Nans nans>
HWY_INLINE void watch_nan(VU words, VU& seen) {
  if constexpr (type == DType::e4m3 && nans == Nans::ignored) {
    const hn::Repartition<std::uint8_t, F32> d;
    const auto low = hn::And(hn::BitCast(d, words), hn::Set(d, 0x7f));
    const auto is_nan = hn::VecFromMask(d, hn::Eq(low, hn::Set(d, 0x7f)));
    seen = hn::Or(seen, hn::BitCast(U32(), is_nan));
  }
}

HWY_INLINE bool any_nan(VU seen) { return !hn::AllTrue(U32(), hn::Eq(seen, hn::Zero(U32()))); }

template <DType type>
HWY_INLINE VU load_words(const Storage<type>* p) {
  const hn::Repartition<Storage<type>, F32> d;
  return hn::BitCast(U32(), hn::LoadU(d, p));
}

// ---- direct: elements on lanes ----

/// A query in the order in which unpack() yields the keys' elements.
template <DType type>
void permute_query(const float* from, float* to) {
  constexpr std::int64_t chunk = lanes * parts<type>;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const std::int64_t inside = d % chunk;
    to[d - inside + inside % parts<type> * lanes + inside / parts<type>] = from[d];
  }
}

/// Products of `row_count` queries with `key_count` keys, summed over lanes in a fixed order.
template <DType type, Nans nans, int row_count, int key_count>
HWY_INLINE void direct_products(const float* queries, const Storage<type>* keys,
                                std::int64_t stride, VF (&products)[key_count][row_count],
                                VU& seen) {
  const F32 df;
  // A lone row would wait for its one chain: it takes a chain for each part of the words.
  constexpr int chains = row_count == 1 ? parts<type> : 1;
  VF sum[key_count][row_count][chains];
  for (auto& key : sum) {
    for (auto& row : key) {
      for (VF& chain : row) chain = hn::Zero(df);
    }
  }
  for (std::int64_t d = 0; d < head_dim; d += lanes * parts<type>) {
    for (int k = 0; k < key_count; ++k) {
      const VU words = load_words<type>(keys + k * stride + d);
      watch_nan<type, nans>(words, seen);
      const auto add = [&](auto part) {
        const VF key = unpack<type, nans, part>(words);
        for (int r = 0; r < row_count; ++r) {
          VF& chain = sum[k][r][part % chains];
          chain = hn::MulAdd(hn::Load(df, queries + r * head_dim + d + part * lanes), key, chain);
        }
      };
      add(std::integral_constant<int, 0>{});
      add(std::integral_constant<int, 1>{});
      if constexpr (parts<type> == 4) {
        add(std::integral_constant<int, 2>{});
        add(std::integral_constant<int, 3>{});
      }
    }
  }
  for (int k = 0; k < key_count; ++k) {
    for (int r = 0; r < row_count; ++r) {
      VF total = sum[k][r][0];
      for (int c = 1; c < chains; ++c) total = hn::Add(total, sum[k][r][c]);
      products[k][r] = hn::SumOfLanes(df, total);
    }
  }
}

/// What a pass over the keys gathers. A constructor that the compiler adds would not be compiled
/// for this file's instruction set, and NEON's vectors, which are classes, have constructors of
/// theirs to be inlined there.
template <int row_count>
struct DirectRows {
  HWY_INLINE DirectRows() : seen(hn::Zero(U32())) {
    const F32 df;
    for (int r = 0; r < row_count; ++r) {
      best[r] = hn::Set(df, negative_infinity);
      nan[r] = hn::Zero(df);
    }
  }

  VF best[row_count];  // running maxima
  VF nan[row_count];   // all ones where a product was NaN
  VU seen;             // of watch_nan()
};

/// `key_count` keys from key `first` on.
template <DType type, Nans nans, int key_count, int row_count>
HWY_INLINE void direct_keys(const float* queries, const KeyBlock& block, std::int64_t first,
                            const std::int64_t* visible, DirectRows<row_count>& rows) {
  const F32 df;
  VF products[key_count][row_count];
  const auto* keys = static_cast<const Storage<type>*>(block.data) + first * block.token_stride;
  direct_products<type, nans, row_count, key_count>(queries, keys, block.token_stride, products,
                                                    rows.seen);
  for (int k = 0; k < key_count; ++k) {
    for (int r = 0; r < row_count; ++r) {
      if (first + k >= visible[r]) continue;
      const VF x = products[k][r];
      rows.best[r] = hn::Max(rows.best[r], x);
      rows.nan[r] = hn::Or(rows.nan[r], hn::VecFromMask(df, hn::IsNaN(x)));
    }
  }
}

template <DType type, Nans nans, int row_count>
void direct_block(const Scratch& scratch, const KeyBlock& block, const std::int64_t* visible) {
  const F32 df;
  constexpr int group = row_count <= 2 ? 4 : 2;  // at most 8 accumulators
  DirectRows<row_count> rows;
  const std::int64_t keys = *std::max_element(visible, visible + row_count);
  std::int64_t k = 0;
  for (; k + group <= keys; k += group) {
    direct_keys<type, nans, group>(scratch.queries, block, k, visible, rows);
  }
  for (; k < keys; ++k) direct_keys<type, nans, 1>(scratch.queries, block, k, visible, rows);
  if constexpr (nans == Nans::ignored) {
    if (any_nan(rows.seen))
      return direct_block<type, Nans::kept, row_count>(scratch, block, visible);
  }
  for (int r = 0; r < row_count; ++r) {
    hn::Store(rows.best[r], df, scratch.best + r * lanes);
    hn::Store(rows.nan[r], df, scratch.nan + r * lanes);
  }
}

// ---- panels: keys on lanes ----

/// Words [0, 4) of `lanes` keys: lane group b of the result holds those of key 4 b + first.
template <class D, class T>
HWY_INLINE hn::Vec<D> gather_words(D d, const T* keys, std::int64_t stride, std::int64_t first) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    const hn::Repartition<T, D> dt;
    return hn::BitCast(d, hn::LoadU(dt, keys + first * stride));
  } else {
    const hn::Half<D> dh;
    const auto low = gather_words(dh, keys, stride, first);
    const auto high =
        gather_words(dh, keys, stride, first + static_cast<std::int64_t>(hn::MaxLanes(D())) / 2);
    return hn::Combine(d, high, low);
  }
}

template <DType type, Nans nans>
HWY_INLINE void store_word(VU words, float* to, VU& seen) {
  const F32 df;
  watch_nan<type, nans>(words, seen);
  hn::Store(unpack<type, nans, 0>(words), df, to);
  hn::Store(unpack<type, nans, 1>(words), df, to + panel_keys);
  if constexpr (parts<type> == 4) {
    hn::Store(unpack<type, nans, 2>(words), df, to + 2 * panel_keys);
    hn::Store(unpack<type, nans, 3>(words), df, to + 3 * panel_keys);
  }
}

/// Asks for the part of the `lanes` keys from `keys` on that is due while elements [d, d + step)
/// of the keys before them are packed: walking rows side by side defeats the hardware's own guess.
template <DType type>
HWY_INLINE void prefetch_keys(const Storage<type>* keys, std::int64_t stride, std::int64_t d) {
  constexpr std::int64_t line = 64 / sizeof(Storage<type>);  // elements
  for (std::int64_t i = 0; i < lanes / 4; ++i) {
    const std::int64_t next = d / (4 * parts<type>)*(lanes / 4) + i;  // of the keys' lines
    constexpr std::int64_t row = head_dim / line;
    hwy::Prefetch(keys + next / row * stride + next % row * line);
  }
}

/// A page of 128 readable keys as f32 panels. Words are transposed before they are unpacked: a
/// half or a quarter of the shuffles.
template <DType type, Nans nans>
void pack_page(const Storage<type>* keys, std::int64_t stride, float* to) {
  const U32 du;
  VU seen = hn::Zero(du);
  const hn::Repartition<std::uint64_t, U32> dw;
  constexpr std::int64_t step = 4 * parts<type>;  // elements of 4 words
  for (std::int64_t k = 0; k < page_size; k += lanes) {
    const Storage<type>* from = keys + k * stride;
    float* panel = to + k / panel_keys * panel_keys * head_dim + k % panel_keys;
    const bool last = k + lanes == page_size;
    for (std::int64_t d = 0; d < head_dim; d += step) {
      if (!last) prefetch_keys<type>(from + lanes * stride, stride, d);
      const VU a = gather_words(du, from + d, stride, 0);
      const VU b = gather_words(du, from + d, stride, 1);
      const VU c = gather_words(du, from + d, stride, 2);
      const VU e = gather_words(du, from + d, stride, 3);
      const auto ab_low = hn::BitCast(dw, hn::InterleaveLower(du, a, b));
      const auto ab_high = hn::BitCast(dw, hn::InterleaveUpper(du, a, b));
      const auto ce_low = hn::BitCast(dw, hn::InterleaveLower(du, c, e));
      const auto ce_high = hn::BitCast(dw, hn::InterleaveUpper(du, c, e));
      float* out = panel + d * panel_keys;
      constexpr std::int64_t word = parts<type> * panel_keys;
      const auto store = [&](auto pairs, std::int64_t i) {
        store_word<type, nans>(hn::BitCast(du, pairs), out + i * word, seen);
      };
      store(hn::InterleaveLower(dw, ab_low, ce_low), 0);
      store(hn::InterleaveUpper(dw, ab_low, ce_low), 1);
      store(hn::InterleaveLower(dw, ab_high, ce_high), 2);
      store(hn::InterleaveUpper(dw, ab_high, ce_high), 3);
    }
  }
  if constexpr (nans == Nans::ignored) {
    if (any_nan(seen)) pack_page<type, Nans::kept>(keys, stride, to);
  }
}

/// Any block: what may not be read becomes 0.
template <DType type>
void pack_block(const KeyBlock& block, const Scratch& scratch) {
  const auto* keys = static_cast<const Storage<type>*>(block.data);
  if (block.readable == page_size) {
    pack_page<type, Nans::ignored>(keys, block.token_stride, scratch.keys);
    return;
  }
  auto* copy = reinterpret_cast<Storage<type>*>(scratch.copy);
  const std::size_t row_bytes = head_dim * sizeof(Storage<type>);
  for (std::int64_t k = 0; k < page_size; ++k) {
    if (k < block.readable) {
      std::memcpy(copy + k * head_dim, keys + k * block.token_stride, row_bytes);
    } else {
      std::memset(copy + k * head_dim, 0, row_bytes);
    }
  }
  pack_page<type, Nans::ignored>(copy, head_dim, scratch.keys);
}

/// `row_count` rows against one panel; keys at or past a row's `visible` do not count.
template <int row_count, bool masked>
HWY_INLINE void panel_rows(const float* queries, const float* panel, std::int64_t first_key,
                           const std::int64_t* visible, float* best, float* nan) {
  const F32 df;
  VF low[row_count], high[row_count];
  for (int r = 0; r < row_count; ++r) low[r] = high[r] = hn::Zero(df);
  for (std::int64_t d = 0; d < head_dim; ++d) {
    const VF key_low = hn::Load(df, panel + d * panel_keys);
    const VF key_high = hn::Load(df, panel + d * panel_keys + lanes);
    for (int r = 0; r < row_count; ++r) {
      const VF q = hn::Set(df, queries[r * head_dim + d]);
      low[r] = hn::MulAdd(q, key_low, low[r]);
      high[r] = hn::MulAdd(q, key_high, high[r]);
    }
  }
  for (int r = 0; r < row_count; ++r) {
    VF a = low[r], b = high[r];
    if constexpr (masked) {
      const VF limit = hn::Set(df, static_cast<float>(visible[r]));
      const VF keys = hn::Iota(df, static_cast<float>(first_key));
      const VF none = hn::Set(df, negative_infinity);
      a = hn::IfThenElse(hn::Lt(keys, limit), a, none);
      b = hn::IfThenElse(hn::Lt(hn::Add(keys, hn::Set(df, static_cast<float>(lanes))), limit), b,
                         none);
    }
    const VF nans = hn::VecFromMask(df, hn::Or(hn::IsNaN(a), hn::IsNaN(b)));
    hn::Store(hn::Or(hn::Load(df, nan + r * lanes), nans), df, nan + r * lanes);
    hn::Store(hn::Max(hn::Load(df, best + r * lanes), hn::Max(a, b)), df, best + r * lanes);
  }
}

template <bool masked>
void panel_block(const Scratch& scratch, std::int64_t rows, const std::int64_t* visible) {
  const F32 df;
  for (std::int64_t i = 0; i < rows * lanes; i += lanes) {
    hn::Store(hn::Set(df, negative_infinity), df, scratch.best + i);
    hn::Store(hn::Zero(df), df, scratch.nan + i);
  }
  for (std::int64_t k = 0; k < page_size; k += panel_keys) {
    const float* panel = scratch.keys + k * head_dim;
    const auto run = [&](auto count, std::int64_t r) {
      panel_rows<count, masked>(scratch.queries + r * head_dim, panel, k, visible + r,
                                scratch.best + r * lanes, scratch.nan + r * lanes);
    };
    for (std::int64_t r = 0, left = rows; left > 0;) {
      // 4 + 4 and 4 + 3: a group of one or two rows would wait for its few chains.
      const std::int64_t take = left > 8 ? tile_rows : left > tile_rows ? 4 : left;
      switch (take) {
        case 1:
          run(std::integral_constant<int, 1>{}, r);
          break;
        case 2:
          run(std::integral_constant<int, 2>{}, r);
          break;
        case 3:
          run(std::integral_constant<int, 3>{}, r);
          break;
        case 4:
          run(std::integral_constant<int, 4>{}, r);
          break;
        case 5:
          run(std::integral_constant<int, 5>{}, r);
          break;
        default:
          run(std::integral_constant<int, tile_rows>{}, r);
      }
      r += take;
      left -= take;
    }
  }
}

// ---- entries ----

void load_queries(const QueryTile& tile, float* memory) {
  const Scratch scratch(memory, tile.rows());
  with_dtype(tile.dtype, [&](auto type) {
    const auto* data = static_cast<const Storage<type>*>(tile.data);
    for (std::int64_t r = 0; r < tile.rows(); ++r) {
      const std::int64_t token = r / tile.heads, head = r % tile.heads;
      const auto* from = data + token * tile.token_stride + head * tile.head_stride;
      float* to = scratch.queries + r * head_dim;
      if (!tile.direct) {
        load_row<type>(from, to);
        continue;
      }
      alignas(64) float row[head_dim];
      load_row<type>(from, row);
      if (tile.key_dtype == DType::bf16) {
        permute_query<DType::bf16>(row, to);
      } else {
        permute_query<DType::e4m3>(row, to);
      }
    }
  });
}

template <DType type>
void score_rows(const QueryTile& tile, const KeyBlock& block, const Scratch& scratch,
                const std::int64_t* visible) {
  if (!tile.direct) {
    pack_block<type>(block, scratch);
    // The first token sees least.
    const bool masked = std::min(block.first_visible, block.readable) < page_size;
    return masked ? panel_block<true>(scratch, tile.rows(), visible)
                  : panel_block<false>(scratch, tile.rows(), visible);
  }
  switch (tile.rows()) {
    case 1:
      return direct_block<type, Nans::ignored, 1>(scratch, block, visible);
    case 2:
      return direct_block<type, Nans::ignored, 2>(scratch, block, visible);
    case 3:
      return direct_block<type, Nans::ignored, 3>(scratch, block, visible);
    default:
      return direct_block<type, Nans::ignored, 4>(scratch, block, visible);
  }
}

void score_block(const QueryTile& tile, const KeyBlock& block, float* memory, float* scores) {
  const Scratch scratch(memory, tile.rows());
  std::int64_t visible[max_tile_rows];
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    visible[r] = std::clamp<std::int64_t>(block.first_visible + r / tile.heads, 0, block.readable);
  }
  if (tile.key_dtype == DType::bf16) {
    score_rows<DType::bf16>(tile, block, scratch, visible);
  } else {
    score_rows<DType::e4m3>(tile, block, scratch, visible);
  }
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    float best = negative_infinity, nan = 0.0f;
    for (std::int64_t i = r * lanes; i < (r + 1) * lanes; ++i) {
      best = std::max(best, scratch.best[i]);
      if (scratch.nan[i] != 0.0f) nan = std::numeric_limits<float>::quiet_NaN();
    }
    scores[r] = best + nan + 0.0f;  // −0 + 0 = +0
  }
}

std::int64_t scratch_floats(std::int64_t rows) {
  return rows * (head_dim + 2 * lanes) + 2 * page_size * head_dim;
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msa::cpu {

std::int64_t score_scratch_bytes(std::int64_t rows) {
  std::int64_t floats = MSA_CPU_CHOOSE(scratch_floats)(rows);
#ifdef MSA_CPU_TILES
  if (tiles::kernels() != nullptr) floats = std::max(floats, tile_scratch_floats(rows));
#endif
  return floats * static_cast<std::int64_t>(sizeof(float));
}

ScoreKernels vector_score_kernels() {
  return {MSA_CPU_CHOOSE(load_queries), MSA_CPU_CHOOSE(score_block)};
}

ScoreKernels score_kernels() {
#ifdef MSA_CPU_TILES
  if (tiles::kernels() != nullptr) return tile_score_kernels();
#endif
  return vector_score_kernels();
}

}  // namespace msa::cpu
#endif  // HWY_ONCE
