// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/json_object.h"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

namespace msa::cli {

using nlohmann::json;

JsonObject read_json_object(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  json value;
  try {
    value = json::parse(text, watch);
  } catch (const json::parse_error& error) {
    return {{}, fmt::format("is not JSON from byte {} on", error.byte)};
  } catch (const json::out_of_range&) {
    return {{}, "holds a number beyond the range of f64"};
  }
  if (!repeated.empty()) return {{}, fmt::format("names '{}' twice", repeated)};
  if (!value.is_object()) return {{}, "is not a JSON object"};
  return {std::move(value), ""};
}

}  // namespace msa::cli
