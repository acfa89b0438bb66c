// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

/// \file
/// Choosing cases by name.

namespace msa::cli {

/// Whether the name is chosen: it holds `filter`, or, where the filter has a * (any text) or a ?
/// (one character), it matches the pattern from end to end. An empty filter chooses everything.
bool matches_filter(std::string_view name, std::string_view filter);

}  // namespace msa::cli
