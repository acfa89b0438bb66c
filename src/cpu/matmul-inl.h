// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0

/// \file
/// The register-tiled f32 product that both halves of attention use: C[rows][n] = A[rows][depth] ·
/// B[depth][n]. Compiled once per instruction set, as convert-inl.h.
///
/// B lies in panels: panel p holds columns [p · panel_width, (p + 1) · panel_width) of all rows of
/// B, dense, so that the panel in use stays in the first-level cache (rows 512 bytes apart would
/// share a few of its sets). Each element of C is one chain of multiply-adds over ascending depth,
/// whatever rows are computed beside it: its bits depend on its own row of A alone.

#include "cpu/convert-inl.h"

#if defined(MSA_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSA_CPU_MATMUL_INL_H_
#undef MSA_CPU_MATMUL_INL_H_
#else
#define MSA_CPU_MATMUL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

/// Two vectors a row: with `row_tile` rows that is 12 accumulators of AVX2's 16 registers, 24 of
/// AVX-512's 32, which covers the latency of the multiply-adds.
inline constexpr std::int64_t panel_width = 2 * hn::MaxLanes(F32());
inline constexpr std::int64_t row_tile = HWY_TARGET == HWY_AVX3 ? 12 : 6;

/// Floats between the starts of a matrix's panels, for B of up to 128 rows.
inline constexpr std::int64_t panel_size = 128 * panel_width;

/// `rows` rows of C, one panel: starts from 0, or from C · scale[row].
template <int rows, bool accumulate>
HWY_INLINE void multiply_tile(const float* const* a, const float* HWY_RESTRICT panel,
                              std::int64_t depth, const float* scale, float* const* c,
                              std::int64_t column) {
  const F32 df;
  constexpr std::int64_t lanes = panel_width / 2;
  VF low[rows];
  VF high[rows];
  for (int r = 0; r < rows; ++r) {
    if constexpr (accumulate) {
      const VF s = hn::Set(df, scale[r]);
      low[r] = hn::Mul(hn::LoadU(df, c[r] + column), s);
      high[r] = hn::Mul(hn::LoadU(df, c[r] + column + lanes), s);
    } else {
      low[r] = hn::Zero(df);
      high[r] = hn::Zero(df);
    }
  }
  const float* row[rows];
  for (int r = 0; r < rows; ++r) row[r] = a[r];
  for (std::int64_t k = 0; k < depth; ++k) {
    const VF b_low = hn::Load(df, panel + k * panel_width);
    const VF b_high = hn::Load(df, panel + k * panel_width + lanes);
    for (int r = 0; r < rows; ++r) {
      const VF x = hn::Set(df, row[r][k]);
      low[r] = hn::MulAdd(x, b_low, low[r]);
      high[r] = hn::MulAdd(x, b_high, high[r]);
    }
  }
  for (int r = 0; r < rows; ++r) {
    hn::StoreU(low[r], df, c[r] + column);
    hn::StoreU(high[r], df, c[r] + column + lanes);
  }
}

/// The tile of `count` ≤ `rows` rows.
template <int rows, bool accumulate>
HWY_INLINE void multiply_some(std::int64_t count, const float* const* a, const float* panel,
                              std::int64_t depth, const float* scale, float* const* c,
                              std::int64_t column) {
  if constexpr (rows > 0) {
    if (count == rows) {
      multiply_tile<rows, accumulate>(a, panel, depth, scale, c, column);
    } else {
      multiply_some<rows - 1, accumulate>(count, a, panel, depth, scale, c, column);
    }
  }
}

/// Rows of memory that will be needed soon, asked for a few at a time between row tiles: a page of
/// a pool lies too far from the last one for the hardware to foresee it, and asking for all of it
/// at once would stop the loads of the products.
class RowPrefetch {
 public:
  RowPrefetch() = default;
  /// `count` rows of `bytes` bytes, `stride` bytes apart, over about `steps` calls of advance().
  RowPrefetch(const void* rows, std::int64_t stride, std::int64_t bytes, std::int64_t count,
              std::int64_t steps)
      : row_(static_cast<const char*>(rows)),
        stride_(stride),
        bytes_(bytes),
        left_(count),
        rows_per_step_(count / HWY_MAX(steps, 1) + 1) {}

  HWY_INLINE void advance() {
    for (std::int64_t i = HWY_MIN(rows_per_step_, left_); i > 0; --i) {
      for (std::int64_t at = 0; at < bytes_; at += 64) __builtin_prefetch(row_ + at, 0, 2);
      row_ += stride_;
      --left_;
    }
  }

 private:
  const char* row_ = nullptr;
  std::int64_t stride_ = 0, bytes_ = 0, left_ = 0, rows_per_step_ = 0;
};

/// Columns [column, column + panel_width) of C[i] = A[i] · B, or of C[i] · scale[i] + A[i] · B, for
/// `count` rows given by pointers. `panel` is 64-byte aligned; `scale` is given only when
/// accumulating.
template <bool accumulate>
void multiply_panel(std::int64_t count, const float* const* a, const float* panel,
                    std::int64_t depth, const float* scale, float* const* c, std::int64_t column,
                    RowPrefetch* prefetch) {
  for (std::int64_t i = 0; i < count; i += row_tile) {
    prefetch->advance();
    multiply_some<row_tile, accumulate>(HWY_MIN(row_tile, count - i), a + i, panel, depth,
                                        accumulate ? scale + i : nullptr, c + i, column);
  }
}

/// Which key of a panel lane `j` of 128-bit block `b` holds while patterns are transposed: the
/// order that expand() turns into neighbouring lanes.
template <DType type>
constexpr std::int64_t key_of_lane(std::int64_t b, std::int64_t j) {
  if (type != DType::bf16) return 8 * b + j;
  return j < 4 ? 4 * b + j : panel_width / 2 + 4 * b + j - 4;
}

/// The lower or upper f32 vector of a transposed row of patterns.
template <DType type, bool upper>
HWY_INLINE VF expand(VU16 patterns) {
  if constexpr (type == DType::bf16) {
    // bf16 is the upper half of f32. Interleaving inside blocks is cheaper than widening across
    // them.
    const U16 d;
    const VU16 zero = hn::Zero(d);
    return hn::BitCast(F32(), upper ? hn::InterleaveUpper(d, zero, patterns)
                                    : hn::InterleaveLower(d, zero, patterns));
  } else {
    return decode_half<type, upper>(patterns);
  }
}

/// Eight patterns of each of the keys first, first + 8, …, one key a 128-bit block, from `column`
/// on.
template <DType type, class D>
HWY_INLINE hn::Vec<D> gather_keys(D d, const Storage<type>* const* keys, std::int64_t column) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    if constexpr (sizeof(Storage<type>) == 2) {
      return hn::LoadU(d, keys[0] + column);
    } else {
      const hn::Rebind<std::int8_t, D> d8;
      const hn::RebindToSigned<D> d16;
      const auto bytes = hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(keys[0] + column));
      return hn::BitCast(d, hn::PromoteTo(d16, bytes));
    }
  } else {
    const hn::Half<D> dh;
    const auto low = gather_keys<type>(dh, keys, column);
    const auto high = gather_keys<type>(dh, keys + hn::MaxLanes(dh), column);
    return hn::Combine(d, high, low);
  }
}

/// Interleaves lanes of `Wide` of vectors i and i + 1 (lower halves of blocks to i, upper to i + 1
/// …): one of the three steps of an 8 × 8 transpose inside each 128-bit block.
template <class Wide, int step>
HWY_INLINE void interleave_step(VU16* v) {
  const hn::Repartition<Wide, U16> d;
  const U16 du;
  for (int i = 0; i < 8; ++i) {
    if ((i & step) != 0) continue;
    const auto a = hn::BitCast(d, v[i]);
    const auto b = hn::BitCast(d, v[i + step]);
    v[i] = hn::BitCast(du, hn::InterleaveLower(d, a, b));
    v[i + step] = hn::BitCast(du, hn::InterleaveUpper(d, a, b));
  }
}

/// One panel of K^T from panel_width keys, given by pointers in the order of key_of_lane(). 16-bit
/// patterns are transposed: half the work of transposing f32.
template <DType type>
HWY_INLINE void transpose_keys(const Storage<type>* const* keys, float* panel) {
  constexpr std::int64_t lanes = panel_width / 2;
  for (std::int64_t column = 0; column < row_elements; column += 8) {
    VU16 v[8];
    for (std::int64_t j = 0; j < 8; ++j) {
      v[j] = widen_patterns<type>(gather_keys<type>(U16(), keys + j, column));
    }
    interleave_step<std::uint16_t, 1>(v);
    interleave_step<std::uint32_t, 2>(v);
    interleave_step<std::uint64_t, 4>(v);
    // v[i] now holds the element whose number is i with its three bits reversed.
    constexpr int order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    for (int i = 0; i < 8; ++i) {
      float* out = panel + (column + i) * panel_width;
      hn::Store(expand<type, false>(v[order[i]]), F32(), out);
      hn::Store(expand<type, true>(v[order[i]]), F32(), out + lanes);
    }
  }
}

/// Panel `p` of K^T: of `count` rows of 128 elements of a cache, `stride` elements apart, those
/// from p · panel_width on become columns. Columns past the last row are 0.
template <DType type>
void pack_key_panel(const Storage<type>* src, std::int64_t stride, std::int64_t count,
                    std::int64_t p, float* panel) {
  static constexpr Storage<type> zeros[row_elements] = {};
  const Storage<type>* keys[panel_width];
  for (std::int64_t i = 0; i < panel_width; ++i) {
    const std::int64_t key = p * panel_width + key_of_lane<type>(i / 8, i % 8);
    keys[i] = key < count ? src + key * stride : zeros;
  }
  transpose_keys<type>(keys, panel);
}

/// Panel `p` of V: columns from p · panel_width on of `count` rows, `stride` elements apart.
template <DType type>
void pack_value_panel(const Storage<type>* src, std::int64_t stride, std::int64_t count,
                      std::int64_t p, float* panel) {
  const F32 df;
  constexpr std::int64_t lanes = panel_width / 2;
  for (std::int64_t k = 0; k < count; ++k) {
    VF low, high;
    load_pair<type>(src + k * stride + p * panel_width, &low, &high);
    hn::Store(low, df, panel + k * panel_width);
    hn::Store(high, df, panel + k * panel_width + lanes);
  }
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
