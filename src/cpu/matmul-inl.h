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

/// C[i] = A[i] · B, or C[i] · scale[i] + A[i] · B, for `count` rows given by pointers and the
/// columns of `panels` panels. `panels_data` is 64-byte aligned. `scale` is given only when
/// accumulating.
template <bool accumulate>
void multiply(std::int64_t count, const float* const* a, const float* panels_data,
              std::int64_t panels, std::int64_t depth, const float* scale, float* const* c) {
  for (std::int64_t p = 0; p < panels; ++p) {
    const float* panel = panels_data + p * panel_size;
    for (std::int64_t i = 0; i < count; i += row_tile) {
      const std::int64_t rows = HWY_MIN(row_tile, count - i);
      multiply_some<row_tile, accumulate>(rows, a + i, panel, depth,
                                          accumulate ? scale + i : nullptr, c + i, p * panel_width);
    }
  }
}

/// `count` rows of 128 elements, `stride` elements apart, as the columns of B: panels of K^T.
/// Columns from `count` up to the end of the last panel touched are 0.
template <DType type>
void pack_transposed(const Storage<type>* src, std::int64_t stride, std::int64_t count,
                     float* panels_data) {
  constexpr std::int64_t lanes = panel_width / 2;
  for (std::int64_t first = 0; first < count; first += panel_width) {
    float* panel = panels_data + first / panel_width * panel_size;
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t row = first + half * lanes;
      const std::int64_t given = HWY_MAX(0, HWY_MIN(lanes, count - row));
      transpose_lanes<type>(src + row * stride, stride, given, panel + half * lanes, panel_width);
    }
  }
}

/// `count` rows of 128 elements, `stride` elements apart, as the rows of B: panels of V.
template <DType type>
void pack_rows(const Storage<type>* src, std::int64_t stride, std::int64_t count,
               float* panels_data) {
  const F32 df;
  constexpr std::int64_t lanes = panel_width / 2;
  for (std::int64_t k = 0; k < count; ++k) {
    for (std::int64_t column = 0; column < row_elements; column += panel_width) {
      float* out = panels_data + column / panel_width * panel_size + k * panel_width;
      hn::Store(load_f32<type>(src + k * stride + column), df, out);
      hn::Store(load_f32<type>(src + k * stride + column + lanes), df, out + lanes);
    }
  }
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
