// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

namespace msa::verify {
namespace {

constexpr int reasons_kept = 4;

}  // namespace

void Judge::fail(const std::string& what) {
  outcome_.passed = false;
  if (failures_++ < reasons_kept) outcome_.detail += (failures_ > 1 ? "\n" : "") + what;
}

void Judge::require(bool condition, const std::string& what) {
  if (!condition) fail(what);
}

void Judge::near(double got, double want, double allowed, const std::string& what) {
  if (std::isnan(want) || std::isinf(want)) {
    const bool same = std::isnan(want) ? std::isnan(got) : got == want;
    if (!same)
      fail(what + ": " + std::to_string(got) + " where " + std::to_string(want) + " was due");
    return;
  }
  at_most(std::fabs(got - want), allowed, what);
}

void Judge::at_most(double error, double allowed, const std::string& what) {
  const double ratio = error / allowed;
  if (ratio <= 1) {
    outcome_.worst = std::max(outcome_.worst, ratio);
    return;
  }
  outcome_.worst = std::isnan(ratio) ? outcome_.worst : std::max(outcome_.worst, ratio);
  std::ostringstream text;
  text << what << ": error " << error << ", allowed " << allowed;
  fail(text.str());
}

void Judge::same_bits(const void* a, const void* b, std::size_t element_bytes,
                      const std::vector<std::int64_t>& dims, const std::string& what) {
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= d;
  const auto* x = static_cast<const unsigned char*>(a);
  const auto* y = static_cast<const unsigned char*>(b);
  const std::size_t bytes = static_cast<std::size_t>(n) * element_bytes;
  if (bytes == 0 || std::memcmp(x, y, bytes) == 0) return;
  const auto first = std::mismatch(x, x + bytes, y).first - x;
  fail(what + ": bits differ first at " +
       coordinates(first / static_cast<std::int64_t>(element_bytes), dims));
}

std::string coordinates(std::int64_t index, const std::vector<std::int64_t>& dims) {
  std::string text;
  for (std::size_t i = dims.size(); i-- > 0;) {
    text.insert(0, std::to_string(index % dims[i]) + (text.empty() ? "" : ", "));
    index /= dims[i];
  }
  return "[" + text + "]";
}

Distance distance(const std::vector<double>& got, const std::vector<double>& want) {
  Distance d;
  double squares = 0, norm = 0, sum = 0;
  std::size_t finite = 0;
  d.same_non_finite = got.size() == want.size();
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (!std::isfinite(want[i]) || !std::isfinite(got[i])) {
      const bool same = std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i];
      d.same_non_finite = d.same_non_finite && same;
      continue;
    }
    const double e = std::fabs(got[i] - want[i]);
    d.max_abs = std::max(d.max_abs, e);
    sum += e;
    squares += e * e;
    norm += want[i] * want[i];
    ++finite;
  }
  if (finite > 0) d.mean_abs = sum / static_cast<double>(finite);
  if (norm > 0) d.relative_l2 = std::sqrt(squares / norm);
  return d;
}

}  // namespace msa::verify
