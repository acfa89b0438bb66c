// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "msa/export.h"
#include "msa/tensor.h"

/// \file
/// The paged KV cache: one logical view `[pages, Hkv, 128, 256]` a layer, in six named physical
/// orders or any other strides.

namespace msa {

/// Named physical orders, outermost letter first: L layer, B page ("block"), H head, N token,
/// C content (K in elements 0..127 of a row, V in 128..255).
/// Engines call LBHNC "HND" and LBNHC "NHD".
enum class KVLayout : std::int32_t {
  LBHNC = 0,  ///< one dense tensor a layer, head-major
  LBNHC = 1,  ///< one dense tensor a layer, token-major (vLLM's default)
  LHBNC = 2,  ///< one dense tensor a layer, heads outermost
  BLHNC = 3,  ///< pages of all layers interleaved, head-major inside
  BLNHC = 4,  ///< pages of all layers interleaved, token-major inside
  BHLNC = 5,  ///< pages outermost, then heads, then layers
};

/// Every named order.
inline constexpr std::array<KVLayout, 6> all_kv_layouts = {KVLayout::LBHNC, KVLayout::LBNHC,
                                                           KVLayout::LHBNC, KVLayout::BLHNC,
                                                           KVLayout::BLNHC, KVLayout::BHLNC};

/// "LBHNC", …
MSA_API const char* name(KVLayout layout);
/// Reads "LBHNC" … "BHLNC", and "HND" and "NHD". Nothing for an unknown name.
MSA_API std::optional<KVLayout> parse_kv_layout(std::string_view text);

/// Extents of a cache that holds all layers of a model.
struct KVCacheShape {
  std::int64_t layers = 1;  ///< L
  std::int64_t pages = 0;   ///< pages of each layer
  std::int64_t heads = 1;   ///< Hkv

  /// Elements of the whole cache, all layers.
  constexpr std::int64_t numel() const { return layers * pages * heads * page_size * 2 * head_dim; }
};

/// Element strides of a layer's view, and where the layer starts.
struct KVStrides {
  std::int64_t page = 0;   ///< from a page to the next
  std::int64_t head = 0;   ///< from a KV head to the next
  std::int64_t token = 0;  ///< from a token of the page to the next
  std::int64_t layer = 0;  ///< offset of layer l = l · layer

  /// Equal in every stride.
  friend constexpr bool operator==(const KVStrides&, const KVStrides&) = default;
};

/// Strides of a named order.
constexpr KVStrides kv_strides(KVLayout layout, const KVCacheShape& s) {
  constexpr std::int64_t row = 2 * head_dim;      // one token of one head: K then V
  constexpr std::int64_t tile = page_size * row;  // one page of one head: 32,768 elements
  const std::int64_t page = s.heads * tile;       // one page of one layer
  switch (layout) {
    case KVLayout::LBHNC:
      return {page, tile, row, s.pages * page};
    case KVLayout::LBNHC:
      return {page, row, s.heads * row, s.pages * page};
    case KVLayout::LHBNC:
      return {tile, s.pages * tile, row, s.pages * page};
    case KVLayout::BLHNC:
      return {s.layers * page, tile, row, page};
    case KVLayout::BLNHC:
      return {s.layers * page, row, s.heads * row, page};
    case KVLayout::BHLNC:
      return {s.layers * page, s.layers * tile, row, tile};
  }
  return {};
}

/// One layer of a KV cache: either one packed view, or K and V as two views with strides of their
/// own.
template <class Pointer>
struct BasicKVCache {
  BasicTensor<Pointer> packed;  // [pages, Hkv, 128, 256] bf16|f16|e4m3|e5m2, last stride 1
  BasicTensor<Pointer> k;       // [pages, Hkv, 128, 128], only where `packed` is not given
  BasicTensor<Pointer> v;       // [pages, Hkv, 128, 128], of k's shape and type

  /// Not given.
  constexpr BasicKVCache() = default;
  /// A packed view stands for a cache.
  template <class Other>
  requires std::convertible_to<BasicTensor<Other>, BasicTensor<Pointer>>
  constexpr BasicKVCache(const BasicTensor<Other>& packed_view) : packed(packed_view) {}
  /// K and V as views of their own.
  constexpr BasicKVCache(const BasicTensor<Pointer>& k_view, const BasicTensor<Pointer>& v_view)
      : k(k_view), v(v_view) {}
  /// A cache that may be written may be read.
  template <class Other>
  requires(std::same_as<Other, void*>&& std::same_as<Pointer, const void*>) constexpr BasicKVCache(
      const BasicKVCache<Other>& other)
      : packed(other.packed), k(other.k), v(other.v) {}

  /// K of every token: `[pages, Hkv, 128, 128]`, whichever form was given.
  constexpr BasicTensor<Pointer> k_view() const {
    return packed.given() ? packed.narrow(3, 0, head_dim) : k;
  }
  /// V of every token: `[pages, Hkv, 128, 128]`.
  constexpr BasicTensor<Pointer> v_view() const {
    return packed.given() ? packed.narrow(3, head_dim, head_dim) : v;
  }
  /// The view that names the cache's type and shape.
  constexpr const BasicTensor<Pointer>& shape_view() const { return packed.given() ? packed : k; }
};

/// A cache that an operator writes.
using KVCache = BasicKVCache<void*>;
/// A cache that an operator only reads.
using ConstKVCache = BasicKVCache<const void*>;

/// Layer `layer`'s packed view of a cache that starts at `base`.
constexpr Tensor kv_layer_view(void* base, DType dtype, KVLayout layout, const KVCacheShape& shape,
                               std::int64_t layer, Device device = {}) {
  const KVStrides s = kv_strides(layout, shape);
  const Tensor first(base, dtype, {shape.pages, shape.heads, page_size, 2 * head_dim},
                     {s.page, s.head, s.token, 1}, device);
  Tensor view = first;
  if (base != nullptr) {
    view.data =
        static_cast<char*>(base) + layer * s.layer * static_cast<std::int64_t>(size_of(dtype));
  }
  return view;
}

}  // namespace msa
