// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/common/convert.cuh"

/// \file
/// Four neighbouring elements at once: the unit in which rows of heads are read and written.

namespace msa::cuda {

/// Two elements rounded to nearest even, `low` in the lower half: 32 bits of a 16-bit type, 16 of
/// an fp8 type, which saturates.
template <DType type>
__device__ inline std::uint32_t pack_pair(float low, float high) {
  std::uint32_t bits = 0;
  if constexpr (type == DType::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else if constexpr (type == DType::f16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  } else {
#if __CUDA_ARCH__ >= 890
    std::uint16_t pair;
    if constexpr (type == DType::e4m3) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    }
    bits = pair;
#else
    const auto code = [](float x) { return type == DType::e4m3 ? f32_to_e4m3(x) : f32_to_e5m2(x); };
    bits = code(low) | code(high) << 8;
#endif
  }
  return bits;
}

/// Memory whose quads are one access each.
struct Wide {
  template <class Word>
  static __device__ Word load(const char* from) {
    return *reinterpret_cast<const Word*>(from);
  }
  template <class Word>
  static __device__ void store(char* to, const Word& word) {
    *reinterpret_cast<Word*>(to) = word;
  }
};

/// Memory where only elements are aligned.
template <class Element>
struct Narrow {
  template <class Word>
  static __device__ Word load(const char* from) {
    Word word;
    for (std::size_t i = 0; i < sizeof word / sizeof(Element); ++i) {
      reinterpret_cast<Element*>(&word)[i] = reinterpret_cast<const Element*>(from)[i];
    }
    return word;
  }
  template <class Word>
  static __device__ void store(char* to, const Word& word) {
    for (std::size_t i = 0; i < sizeof word / sizeof(Element); ++i) {
      reinterpret_cast<Element*>(to)[i] = reinterpret_cast<const Element*>(&word)[i];
    }
  }
};

/// How rows lie in memory: every quad aligned to its size, or elements alone.
enum class Rows { aligned, unaligned };

template <Rows rows, class Element>
using Access = std::conditional_t<rows == Rows::aligned, Wide, Narrow<Element>>;

/// Four elements of 16 bits.
struct Quad {
  std::uint32_t word[2] = {};

  template <Rows rows>
  __device__ void load(const char* from) {
    const uint2 x = Access<rows, std::uint16_t>::template load<uint2>(from);
    word[0] = x.x;
    word[1] = x.y;
  }
  template <Rows rows>
  __device__ void store(char* to) const {
    Access<rows, std::uint16_t>::store(to, make_uint2(word[0], word[1]));
  }
  template <DType type>
  __device__ void widen(float (&x)[4]) const {
    for (int i = 0; i < 4; ++i) x[i] = to_f32<type>(word[i / 2] >> 16 * (i % 2) & 0xffff);
  }
};

/// Stores four elements.
template <DType type, Rows rows>
__device__ inline void store_quad(const float (&x)[4], char* to) {
  const std::uint32_t low = pack_pair<type>(x[0], x[1]), high = pack_pair<type>(x[2], x[3]);
  if constexpr (size_of(type) == 2) {
    Access<rows, std::uint16_t>::store(to, make_uint2(low, high));
  } else {
    Access<rows, std::uint8_t>::store(to, low | high << 16);
  }
}

/// Four elements of a table of bf16, f16 or f32, as they lie there: what is loaded ahead of its use
/// is converted when it is used.
struct TableQuad {
  /// From element `first` of `table`.
  template <Rows rows>
  __device__ void load(DType type, const char* table, int first) {
    if (type == DType::f32) {
      all = Access<rows, float>::template load<float4>(table + 4 * first);
      return;
    }
    const uint2 half = Access<rows, std::uint16_t>::template load<uint2>(table + 2 * first);
    all.x = __uint_as_float(half.x);
    all.y = __uint_as_float(half.y);
  }
  __device__ void widen(DType type, float (&x)[4]) const {
    if (type == DType::f32) {
      x[0] = all.x, x[1] = all.y, x[2] = all.z, x[3] = all.w;
      return;
    }
    const Quad quad{{__float_as_uint(all.x), __float_as_uint(all.y)}};
    type == DType::bf16 ? quad.widen<DType::bf16>(x) : quad.widen<DType::f16>(x);
  }

  float4 all;
};

}  // namespace msa::cuda
