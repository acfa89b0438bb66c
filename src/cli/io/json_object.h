// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

/// \file
/// JSON from files that others wrote.

namespace msa::cli {

/// What a text holds.
struct JsonObject {
  nlohmann::json value;
  std::string fault;  ///< "is not a JSON object", …; empty where `value` is one
};

/// Reads a text that is to be one JSON object without repeated keys: a reader that kept one of two
/// would hide the other's value.
JsonObject read_json_object(std::string_view text);

}  // namespace msa::cli
