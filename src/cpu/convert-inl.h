// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0

/// \file
/// Rows of any element type as f32 vectors and back, and page tiles as f32 matrices. Compiled once
/// per instruction set: include after foreach_target.h, use inside HWY_NAMESPACE.
///
/// Loads are exact for every bit pattern (NaN stays NaN). Stores round to nearest even; fp8
/// saturates and keeps NaN. Common/numeric.h holds the scalar text that the tests compare with.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "msa/types.h"

#if defined(MSA_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSA_CPU_CONVERT_INL_H_
#undef MSA_CPU_CONVERT_INL_H_
#else
#define MSA_CPU_CONVERT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Full vectors of the target; every kernel works on f32.
using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

/// An element type of a cache or of an activation.
template <DType type>
struct Element;

/// Formats with an exponent shorter than f32's, described by what the conversions need.
template <int mantissa_bits, int exponent_bias, std::uint32_t largest_bits, std::uint32_t nan_bits,
          bool saturates_>
struct SmallFormat {
  static constexpr int mantissa = mantissa_bits;
  static constexpr int bias = exponent_bias;
  static constexpr std::uint32_t largest = largest_bits;  // as f32 bits
  static constexpr std::uint32_t nan = nan_bits;
  static constexpr bool saturates = saturates_;
  static constexpr int shift = 23 - mantissa;
  static constexpr std::uint32_t first_normal = std::uint32_t{1} << mantissa;
  // f32 exponent field of the smallest normal number.
  static constexpr std::uint32_t min_exponent = 127 + 1 - bias;
};

template <>
struct Element<DType::f32> {
  using Storage = float;
};
template <>
struct Element<DType::bf16> {
  using Storage = std::uint16_t;
  static constexpr std::uint32_t largest = 0x7f7f0000u;  // as f32 bits
};
template <>
struct Element<DType::f16> : SmallFormat<10, 15, 0x477fe000u, 0x7e00, false> {
  using Storage = std::uint16_t;
  static constexpr std::uint32_t infinity = 0x7c00;  // the first pattern that is not a number
};
template <>
struct Element<DType::e4m3> : SmallFormat<3, 7, 0x43e00000u, 0x7f, true> {
  using Storage = std::uint8_t;
  static constexpr std::uint32_t infinity = 0x7f;
};
template <>
struct Element<DType::e5m2> : SmallFormat<2, 15, 0x47600000u, 0x7e, true> {
  using Storage = std::uint8_t;
  static constexpr std::uint32_t infinity = 0x7c;
};

template <DType type>
using Storage = typename Element<type>::Storage;

// ---- patterns in 32-bit lanes ----

/// a < b for lanes below 2^31: signed comparisons are one instruction everywhere.
HWY_INLINE hn::Mask<U32> less(VU a, VU b) {
  const hn::RebindToSigned<U32> di;
  return hn::RebindMask(U32(), hn::Lt(hn::BitCast(di, a), hn::BitCast(di, b)));
}

/// Exact value of the small-format patterns in the low bits of each lane; higher bits must be 0.
/// Works without denormal arithmetic, so that subnormals cost nothing.
template <DType type>
HWY_INLINE VF decode_lanes(VU bits) {
  const F32 df;
  const U32 du;
  if constexpr (type == DType::bf16) {
    return hn::BitCast(df, hn::ShiftLeft<16>(bits));
  } else {
    using E = Element<type>;
    constexpr int sign_bit = 8 * sizeof(typename E::Storage) - 1;
    const VU sign = hn::ShiftLeft<31 - sign_bit>(hn::And(bits, hn::Set(du, 1u << sign_bit)));
    const VU a = hn::AndNot(hn::Set(du, 1u << sign_bit), bits);
    const VU shifted = hn::ShiftLeft<E::shift>(a);
    const VF normal = hn::BitCast(df, hn::Add(shifted, hn::Set(du, (127u - E::bias) << 23)));
    // A subnormal's mantissa under the smallest normal's exponent, minus that normal number.
    const VU base = hn::Set(du, E::min_exponent << 23);
    const VF subnormal = hn::Sub(hn::BitCast(df, hn::Add(shifted, base)), hn::BitCast(df, base));
    VF x = hn::IfThenElse(hn::RebindMask(df, less(a, hn::Set(du, E::first_normal))), subnormal,
                          normal);
    // Inf and NaN: all exponent bits of f32 set; e4m3's one NaN has mantissa bits already.
    const auto special = less(hn::Set(du, E::infinity - 1), a);
    x = hn::Or(x, hn::BitCast(df, hn::IfThenElseZero(special, hn::Set(du, 0x7f800000u))));
    return hn::Or(x, hn::BitCast(df, sign));
  }
}

/// Patterns of f32 values rounded to the type, in the low bits of each lane.
template <DType type>
HWY_INLINE VU encode_lanes(VF x) {
  const F32 df;
  const U32 du;
  const VU u = hn::BitCast(du, x);
  const auto nan = hn::RebindMask(du, hn::IsNaN(x));
  if constexpr (type == DType::bf16) {
    const VU odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
    const VU rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
    return hn::IfThenElse(nan, hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u)), rounded);
  } else {
    using E = Element<type>;
    constexpr int sign_bit = 8 * sizeof(typename E::Storage) - 1;
    const VU sign = hn::ShiftLeft<sign_bit>(hn::ShiftRight<31>(u));
    VU a = hn::And(u, hn::Set(du, 0x7fffffffu));
    if constexpr (E::saturates) a = hn::Min(a, hn::Set(du, E::largest));
    // Subnormal results: adding a power of two whose ulp is the format's smallest number rounds.
    constexpr std::uint32_t magic = (E::min_exponent + E::shift) << 23;
    const VF shifted = hn::Add(hn::BitCast(df, a), hn::BitCast(df, hn::Set(du, magic)));
    const VU subnormal = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, magic));
    const VU odd = hn::And(hn::ShiftRight<E::shift>(a), hn::Set(du, 1u));
    constexpr std::uint32_t half = (1u << (E::shift - 1)) - 1;
    constexpr std::uint32_t rebias = half - ((127u - E::bias) << 23);
    const VU normal = hn::ShiftRight<E::shift>(hn::Add(a, hn::Add(odd, hn::Set(du, rebias))));
    VU r = hn::IfThenElse(less(a, hn::Set(du, E::min_exponent << 23)), subnormal, normal);
    if constexpr (!E::saturates) r = hn::Min(r, hn::Set(du, E::infinity));
    return hn::Or(sign, hn::IfThenElse(nan, hn::Set(du, E::nan), r));
  }
}

// ---- vectors from and to memory ----

/// Lanes(F32) elements from `p` on, as f32. `p` needs no alignment beyond the element's.
template <DType type>
HWY_INLINE VF load_f32(const Storage<type>* p) {
  const F32 df;
  if constexpr (type == DType::f32) {
    return hn::LoadU(df, p);
  } else if constexpr (type == DType::f16 && HWY_TARGET != HWY_EMU128) {
    const hn::Rebind<hwy::float16_t, F32> d16;
    return hn::PromoteTo(df, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  } else if constexpr (type == DType::e5m2 && HWY_TARGET != HWY_EMU128) {
    // e5m2 is the upper half of f16.
    const hn::Rebind<hwy::float16_t, F32> d16;
    const hn::RebindToUnsigned<decltype(d16)> du16;
    const hn::Rebind<std::uint8_t, F32> d8;
    const auto wide = hn::ShiftLeft<8>(hn::PromoteTo(du16, hn::LoadU(d8, p)));
    return hn::PromoteTo(df, hn::BitCast(d16, wide));
  } else {
    const hn::Rebind<Storage<type>, F32> d_small;
    return decode_lanes<type>(hn::PromoteTo(U32(), hn::LoadU(d_small, p)));
  }
}

/// Full vectors of 16-bit patterns: twice the lanes of F32.
using U16 = hn::Repartition<std::uint16_t, F32>;
using VU16 = hn::Vec<U16>;

/// The type whose 16-bit patterns carry an element type's values: fp8 widens to f16.
template <DType type>
inline constexpr DType wide_type = sizeof(Storage<type>) == 1 ? DType::f16 : type;

/// 16-bit patterns of elements in 16-bit lanes, fp8 widened from sign-extended bytes. An e4m3 value
/// comes out as 2^-8 of itself, which its exponent needs to stand in an f16.
template <DType type>
HWY_INLINE VU16 widen_patterns(VU16 bits) {
  const U16 d;
  if constexpr (type == DType::e4m3) {
    // The sign moves to bit 15 (its copy in bit 14 goes), the other seven bits below it. Only the
    // NaN carries into bit 14, which makes it f16's NaN.
    const VU16 h = hn::And(hn::ShiftLeft<7>(bits), hn::Set(d, 0xbf80));
    return hn::Or(h, hn::And(hn::Add(h, hn::Set(d, 0x0080)), hn::Set(d, 0x4000)));
  } else if constexpr (type == DType::e5m2) {
    return hn::ShiftLeft<8>(bits);
  } else {
    return bits;
  }
}

/// The lower or upper half of `patterns` (of widen_patterns<type>) as f32.
template <DType type, bool upper>
HWY_INLINE VF decode_half(VU16 patterns) {
  const F32 df;
  const hn::Half<U16> d_half;
  const auto half = upper ? hn::UpperHalf(d_half, patterns) : hn::LowerHalf(d_half, patterns);
  VF x;
  if constexpr (wide_type<type> == DType::f16 && HWY_TARGET != HWY_EMU128) {
    x = hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), half));
  } else {
    x = decode_lanes<wide_type<type>>(hn::PromoteTo(U32(), half));
  }
  return type == DType::e4m3 ? hn::Mul(x, hn::Set(df, 256.0f)) : x;
}

/// 2 · Lanes(F32) elements from `p` on, as two vectors.
template <DType type>
HWY_INLINE void load_pair(const Storage<type>* p, VF* low, VF* high) {
  if constexpr (sizeof(Storage<type>) == 1) {
    const hn::Rebind<std::int8_t, U16> d8;
    const hn::RebindToSigned<U16> d16;
    const auto bytes = hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(p));
    const VU16 patterns = widen_patterns<type>(hn::BitCast(U16(), hn::PromoteTo(d16, bytes)));
    *low = decode_half<type, false>(patterns);
    *high = decode_half<type, true>(patterns);
  } else {
    *low = load_f32<type>(p);
    *high = load_f32<type>(p + hn::MaxLanes(F32()));
  }
}

/// Stores Lanes(F32) values rounded to the type.
template <DType type>
HWY_INLINE void store_f32(VF x, Storage<type>* p) {
  if constexpr (type == DType::f32) {
    hn::StoreU(x, F32(), p);
  } else {
    // Patterns fit the narrow type, so the saturating narrowing of signed lanes is exact.
    const hn::RebindToSigned<F32> di;
    const hn::Rebind<Storage<type>, F32> d_small;
    hn::StoreU(hn::DemoteTo(d_small, hn::BitCast(di, encode_lanes<type>(x))), d_small, p);
  }
}

/// Values past the type's largest by no more than 2^-7 of it become it, as weights that are rounded
/// to bf16 over their unrounded sum may pass it by 2^-8; what lies further off is beyond the type,
/// which for bf16 is beyond f32 too. Infinity and NaN stay.
template <DType type>
HWY_INLINE VF clamp_to_largest(VF x) {
  const F32 df;
  const VF most = hn::BitCast(df, hn::Set(U32(), Element<type>::largest));
  const VF reach = hn::Min(hn::Mul(most, hn::Set(df, 1 + 0x1p-7f)),
                           hn::Set(df, std::numeric_limits<float>::max()));
  return hn::IfThenElse(hn::Le(hn::Abs(x), reach), hn::Clamp(x, hn::Neg(most), most), x);
}

/// `x` rounded to the type and back.
template <DType type>
HWY_INLINE VF round_f32(VF x) {
  if constexpr (type == DType::f32) {
    return x;
  } else {
    return decode_lanes<type>(encode_lanes<type>(x));
  }
}

/// Calls `body(std::integral_constant<DType, type>{})` for a cache's type, known at run time.
template <class Body>
HWY_INLINE void with_cache_type(DType type, Body&& body) {
  switch (type) {
    case DType::bf16:
      return body(std::integral_constant<DType, DType::bf16>{});
    case DType::f16:
      return body(std::integral_constant<DType, DType::f16>{});
    case DType::e4m3:
      return body(std::integral_constant<DType, DType::e4m3>{});
    case DType::e5m2:
      return body(std::integral_constant<DType, DType::e5m2>{});
    default:
      return;
  }
}

/// The same for all float types.
template <class Body>
HWY_INLINE void with_dtype(DType type, Body&& body) {
  if (type == DType::f32) return body(std::integral_constant<DType, DType::f32>{});
  with_cache_type(type, body);
}

// ---- rows of 128 elements and tiles of them ----

/// Elements of a row: the fixed head_dim.
inline constexpr std::int64_t row_elements = head_dim;

/// One row of 128 elements as f32.
template <DType type>
HWY_INLINE void load_row(const Storage<type>* src, float* dst) {
  constexpr std::size_t lanes = hn::MaxLanes(F32());
  for (std::size_t i = 0; i < row_elements; i += 2 * lanes) {
    VF low, high;
    load_pair<type>(src + i, &low, &high);
    hn::StoreU(low, F32(), dst + i);
    hn::StoreU(high, F32(), dst + i + lanes);
  }
}

/// 128 f32 values rounded to the type.
template <DType type>
HWY_INLINE void store_row(const float* src, Storage<type>* dst) {
  const std::size_t lanes = hn::Lanes(F32());
  for (std::size_t i = 0; i < row_elements; i += lanes) {
    store_f32<type>(hn::LoadU(F32(), src + i), dst + i);
  }
}

/// `count` rows of 128 elements, `stride` elements apart → f32 `dst[row][128]`.
template <DType type>
void convert_rows(const Storage<type>* src, std::int64_t stride, std::int64_t count, float* dst) {
  for (std::int64_t r = 0; r < count; ++r) load_row<type>(src + r * stride, dst + r * row_elements);
}

/// Lane group b (4 lanes) of the result: `rows[4 b + first][column …]`.
template <class D>
HWY_INLINE hn::Vec<D> gather_blocks(D d, const float* rows, std::size_t first) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows + first * row_elements);
  } else {
    const hn::Half<D> dh;
    const auto low = gather_blocks(dh, rows, first);
    const auto high = gather_blocks(dh, rows, first + hn::Lanes(dh));
    return hn::Combine(d, high, low);
  }
}

/// f32 `rows[lanes][128]` → `dst[128][stride]`, `lanes` columns of it.
HWY_INLINE void transpose_rows(const float* rows, float* dst, std::int64_t stride) {
  const F32 df;
  const hn::Repartition<double, F32> dd;
  for (std::int64_t c = 0; c < row_elements; c += 4) {
    const VF a = gather_blocks(df, rows + c, 0);
    const VF b = gather_blocks(df, rows + c, 1);
    const VF e = gather_blocks(df, rows + c, 2);
    const VF f = gather_blocks(df, rows + c, 3);
    const auto ab_low = hn::BitCast(dd, hn::InterleaveLower(df, a, b));
    const auto ab_high = hn::BitCast(dd, hn::InterleaveUpper(df, a, b));
    const auto ef_low = hn::BitCast(dd, hn::InterleaveLower(df, e, f));
    const auto ef_high = hn::BitCast(dd, hn::InterleaveUpper(df, e, f));
    float* out = dst + c * stride;
    hn::StoreU(hn::BitCast(df, hn::InterleaveLower(dd, ab_low, ef_low)), df, out);
    hn::StoreU(hn::BitCast(df, hn::InterleaveUpper(dd, ab_low, ef_low)), df, out + stride);
    hn::StoreU(hn::BitCast(df, hn::InterleaveLower(dd, ab_high, ef_high)), df, out + 2 * stride);
    hn::StoreU(hn::BitCast(df, hn::InterleaveUpper(dd, ab_high, ef_high)), df, out + 3 * stride);
  }
}

/// The first `count` ≤ lanes of one vector of rows → f32 `dst[128][dst_stride]`: column j is row j;
/// columns from `count` to the vector's end are 0.
template <DType type>
HWY_INLINE void transpose_lanes(const Storage<type>* src, std::int64_t stride, std::int64_t count,
                                float* dst, std::int64_t dst_stride) {
  constexpr std::int64_t lanes = hn::MaxLanes(F32());
  alignas(64) float rows[lanes * row_elements];
  for (std::int64_t r = 0; r < lanes; ++r) {
    float* row = rows + r * row_elements;
    if (r < count) {
      load_row<type>(src + r * stride, row);
    } else {
      for (std::int64_t i = 0; i < row_elements; ++i) row[i] = 0.0f;
    }
  }
  transpose_rows(rows, dst, dst_stride);
}

/// `count` rows of 128 elements, `stride` elements apart → f32 `dst[128][dst_stride]`: column j is
/// row j. Columns from `count` up to the next multiple of the vector length are set to 0;
/// dst_stride must leave room for them.
template <DType type>
void convert_transposed(const Storage<type>* src, std::int64_t stride, std::int64_t count,
                        float* dst, std::int64_t dst_stride) {
  constexpr std::int64_t lanes = hn::MaxLanes(F32());
  for (std::int64_t first = 0; first < count; first += lanes) {
    transpose_lanes<type>(src + first * stride, stride, HWY_MIN(lanes, count - first), dst + first,
                          dst_stride);
  }
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
