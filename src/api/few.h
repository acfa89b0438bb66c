// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "msa/error.h"

namespace msa {

/// A list of at most `most` values that allocates nothing: every call writes a dozen of them down
/// for its validator, and vectors took a quarter of what it costs.
template <class T, std::size_t most>
class Few {
 public:
  constexpr Few() = default;
  constexpr Few(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }

  constexpr void push_back(const T& value) {
    if (size_ == most) throw Error(ErrorCode::internal, "a list is longer than its type allows");
    values_[size_++] = value;
  }
  constexpr std::size_t size() const { return size_; }
  constexpr const T* begin() const { return values_.data(); }
  constexpr const T* end() const { return values_.data() + size_; }
  constexpr const T& operator[](std::size_t i) const { return values_[i]; }

 private:
  std::array<T, most> values_{};
  std::size_t size_ = 0;
};

}  // namespace msa
