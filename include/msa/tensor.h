// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <type_traits>

#include "msa/types.h"

/// \file
/// Tensors as views: pointer, element type, device, shape, strides. Nothing here owns memory.

namespace msa {

/// A strided view of up to five dimensions. `Pointer` is `void*` (outputs) or `const void*`
/// (inputs). Strides count elements, not bytes, are 64-bit everywhere, and may be any numbers that
/// the operator allows: no operator asks for a dense tensor.
template <class Pointer>
struct BasicTensor {
  /// Most dimensions a view can have.
  static constexpr int max_rank = 5;

  Pointer data = nullptr;                       ///< first element
  DType dtype = DType::f32;                     ///< type of the elements
  Device device;                                ///< where `data` lives
  int rank = 0;                                 ///< dimensions in use, 0 to max_rank
  std::array<std::int64_t, max_rank> shape{};   ///< extents
  std::array<std::int64_t, max_rank> stride{};  ///< in elements

  /// Not given.
  constexpr BasicTensor() = default;

  /// A view with explicit strides. Dimensions beyond `max_rank` are dropped.
  constexpr BasicTensor(Pointer pointer, DType type, std::span<const std::int64_t> dims,
                        std::span<const std::int64_t> strides, Device where = {})
      : data(pointer), dtype(type), device(where) {
    for (std::size_t i = 0; i < dims.size() && i < strides.size() && rank < max_rank; ++i, ++rank) {
      shape[rank] = dims[i];
      stride[rank] = strides[i];
    }
  }
  /// The same from lists.
  constexpr BasicTensor(Pointer pointer, DType type, std::initializer_list<std::int64_t> dims,
                        std::initializer_list<std::int64_t> strides, Device where = {})
      : BasicTensor(pointer, type, std::span(dims.begin(), dims.size()),
                    std::span(strides.begin(), strides.size()), where) {}

  /// An output view may be read: `Tensor` converts to `ConstTensor`.
  template <class Other>
  requires(std::same_as<Other, void*>&& std::same_as<Pointer, const void*>) constexpr BasicTensor(
      const BasicTensor<Other>& other)
      : data(other.data),
        dtype(other.dtype),
        device(other.device),
        rank(other.rank),
        shape(other.shape),
        stride(other.stride) {}

  /// A dense row-major view.
  static constexpr BasicTensor dense(Pointer pointer, DType type,
                                     std::initializer_list<std::int64_t> dims, Device where = {}) {
    BasicTensor t;
    t.data = pointer;
    t.dtype = type;
    t.device = where;
    for (std::int64_t d : dims) {
      if (t.rank < max_rank) t.shape[t.rank++] = d;
    }
    std::int64_t step = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
      t.stride[i] = step;
      step = product(step, t.shape[i]);
    }
    return t;
  }

  /// True where the argument was given: an optional tensor is left out by leaving it default.
  constexpr bool given() const { return rank != 0 || data != nullptr; }

  /// Number of elements: 0 where an extent is negative, 2^63 − 1 where it is that or more.
  /// Dimensions past `max_rank`, which a wrong rank may count, do not exist.
  constexpr std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank && i < max_rank; ++i) n = product(n, shape[i]);
    return n;
  }

  /// The same bytes under another type of the same size: gives a `u8` cache its fp8 type. A type of
  /// another size leaves the view unchanged.
  constexpr BasicTensor as(DType type) const {
    BasicTensor t = *this;
    if (size_of(type) == size_of(dtype)) t.dtype = type;
    return t;
  }

  /// Dimensions `a` and `b` exchanged: a head-major buffer seen token-major, without a copy.
  constexpr BasicTensor transpose(int a, int b) const {
    BasicTensor t = *this;
    t.shape[a] = shape[b];
    t.stride[a] = stride[b];
    t.shape[b] = shape[a];
    t.stride[b] = stride[a];
    return t;
  }

  /// Elements [begin, begin + length) of dimension `dim`. Where no element is left, `data` stays:
  /// the strides of such a view may be any numbers.
  constexpr BasicTensor narrow(int dim, std::int64_t begin, std::int64_t length) const {
    BasicTensor t = *this;
    t.shape[dim] = length;
    if (t.numel() > 0) t.data = offset_by(begin * stride[dim]);
    return t;
  }

  /// The view's first element, `T` checked by the caller through `dtype`.
  template <class T>
  constexpr auto* ptr() const {
    using Qualified = std::conditional_t<std::same_as<Pointer, const void*>, const T, T>;
    return static_cast<Qualified*>(data);
  }

 private:
  /// a · b for a ≥ 0, kept from 0 to 2^63 − 1: extents may be any numbers.
  static constexpr std::int64_t product(std::int64_t a, std::int64_t b) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    if (b <= 0) return 0;
    return a > most / b ? most : a * b;
  }

  Pointer offset_by(std::int64_t elements) const {
    using Byte = std::conditional_t<std::same_as<Pointer, const void*>, const char, char>;
    if (data == nullptr) return nullptr;
    return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
  }
};

/// A view an operator writes.
using Tensor = BasicTensor<void*>;
/// A view an operator only reads.
using ConstTensor = BasicTensor<const void*>;

/// A factor given as a host number or as one f32 on the tensors' device, which may change between
/// replays of a captured graph. Where `tensor` is given, `value` is ignored.
struct Scale {
  float value = 1.0f;  ///< the factor, where `tensor` is not given
  ConstTensor tensor;  // [1] f32, optional

  /// 1.
  constexpr Scale() = default;
  /// A host number.
  constexpr Scale(float number) : value(number) {}
  /// A number in the tensors' device memory.
  constexpr explicit Scale(const ConstTensor& on_device) : tensor(on_device) {}
};

}  // namespace msa
