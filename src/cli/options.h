// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

/// \file
/// Checks of the texts of options, before the parser makes numbers of them: it takes 2^64 for
/// 2^64 − 1, −1 for the largest of unsigned numbers, and NaN for within any range.

namespace msa::cli {

/// A whole number in decimal digits, `low` to `high`; Int is the option's own type.
template <class Int>
CLI::Validator whole_number(Int low = std::numeric_limits<Int>::min(),
                            Int high = std::numeric_limits<Int>::max()) {
  const auto check = [low, high](const std::string& text) -> std::string {
    Int value{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= low && value <= high) return "";
    return fmt::format("is '{}'; allowed: whole numbers from {} to {}", text, low, high);
  };
  return CLI::Validator(check, "");
}

/// A number, `low` to `high`.
inline CLI::Validator number(double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool whole_text = !text.empty() && end == text.c_str() + text.size();
    if (whole_text && value >= low && value <= high) return "";
    return fmt::format("is '{}'; allowed: numbers from {} to {}", text, low, high);
  };
  return CLI::Validator(check, "");
}

}  // namespace msa::cli
