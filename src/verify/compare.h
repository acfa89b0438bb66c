// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "verify/verify.h"

/// \file
/// Judges: bitwise equality and the tolerances of the contract's section 9.

namespace msa::verify {

/// Collects what a case finds.
class Judge {
 public:
  /// A condition that must hold.
  void require(bool condition, const std::string& what);
  /// |got − want| ≤ allowed, where NaN needs NaN and an infinity the same infinity.
  void near(double got, double want, double allowed, const std::string& what);
  /// A measured error against its bound, for errors taken over many elements.
  void at_most(double error, double allowed, const std::string& what);
  /// Equal bytes; the first difference is reported at its coordinates in `dims` (of elements).
  void same_bits(const void* a, const void* b, std::size_t element_bytes,
                 const std::vector<std::int64_t>& dims, const std::string& what);

  bool passed() const { return outcome_.passed; }
  const Outcome& outcome() const { return outcome_; }

 private:
  void fail(const std::string& what);

  Outcome outcome_;
  int failures_ = 0;
};

/// Coordinates of element `index` of a dense array: "[3, 0, 17]".
std::string coordinates(std::int64_t index, const std::vector<std::int64_t>& dims);

/// How far results are from the reference: the numbers that section 9 bounds.
struct Distance {
  double max_abs = 0;
  double mean_abs = 0;
  double relative_l2 = 0;       // ‖got − want‖ / ‖want‖
  bool same_non_finite = true;  // NaN and infinities at the same places
};
Distance distance(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace msa::verify
