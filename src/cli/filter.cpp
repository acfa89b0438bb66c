// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/filter.h"

#include <cstddef>

namespace msa::cli {
namespace {

/// The usual walk with one point of return: the last * takes one character more on a mismatch.
bool matches_pattern(std::string_view name, std::string_view pattern) {
  std::size_t n = 0, p = 0;
  std::size_t star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++n;
      ++p;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

bool matches_filter(std::string_view name, std::string_view filter) {
  if (filter.find_first_of("*?") == std::string_view::npos) {
    return name.find(filter) != std::string_view::npos;
  }
  return matches_pattern(name, filter);
}

}  // namespace msa::cli
