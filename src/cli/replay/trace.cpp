// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/io/json_object.h"
#include "msa/error.h"

namespace msa::replay {
namespace {

constexpr std::size_t max_line_bytes = std::size_t{1} << 20;  // 2,048 ids of 20 digits fit 20 times
constexpr std::size_t max_faults = 20;                        // reported before reading stops
constexpr double max_arrival_ms = 1e15;                       // 30,000 years; exact in a double

/// Collects what is wrong with one file, line by line.
class Faults {
 public:
  explicit Faults(std::string_view name) : name_(name) {}

  void at_line(std::int64_t line) { line_ = line; }
  void add(std::string_view what) {
    list_.push_back(fmt::format("{}:{}: {}", name_, line_, what));
    if (list_.size() == max_faults) {
      list_.push_back(fmt::format("{}: too many faults, stopped at line {}", name_, line_));
      raise();
    }
  }
  std::size_t count() const { return list_.size(); }
  void raise() const {
    if (!list_.empty()) throw Error(ErrorCode::io, list_);
  }

 private:
  std::string name_;
  std::int64_t line_ = 0;
  std::vector<std::string> list_;
};

/// At most 40 bytes of `text`, what is not printable ASCII replaced, for an error message.
std::string excerpt(std::string_view text) {
  std::string shown(text.substr(0, 40));
  for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
  return text.size() > 40 ? shown + "…" : shown;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const std::size_t first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

/// The rules that both formats share. `earlier` is the arrival of the request before.
void check(const TraceRequest& r, double earlier, std::string_view arrival_name, Faults& faults) {
  if (r.arrival_ms < earlier) {
    faults.add(fmt::format("'{}' is {}; allowed: no less than the request before it ({})",
                           arrival_name, r.arrival_ms, earlier));
  }
  if (r.input_length + r.output_length > max_context) {
    faults.add(fmt::format("'input_length' + 'output_length' is {}; allowed: 1 to {} tokens",
                           r.input_length + r.output_length, max_context));
  }
}

// ---- Mooncake ----

using Json = nlohmann::json;

/// The number at `key` as text for an error, or what stands there instead.
std::string shown(const Json& value) {
  return excerpt(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

const Json* find(const Json& line, const char* key, Faults& faults) {
  const auto it = line.find(key);
  if (it != line.end()) return &*it;
  faults.add(fmt::format("field '{}' is missing", key));
  return nullptr;
}

std::int64_t read_integer(const Json& line, const char* key, std::int64_t lowest,
                          std::int64_t highest, Faults& faults) {
  const Json* value = find(line, key, faults);
  if (value == nullptr) return lowest;
  const bool fits = value->is_number_unsigned()
                        ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(highest)
                        : value->is_number_integer() && value->get<std::int64_t>() <= highest;
  if (fits && value->get<std::int64_t>() >= lowest) return value->get<std::int64_t>();
  faults.add(fmt::format("'{}' is {}; allowed: an integer from {} to {}", key, shown(*value),
                         lowest, highest));
  return lowest;
}

double read_arrival(const Json& line, Faults& faults) {
  const Json* value = find(line, "timestamp", faults);
  if (value == nullptr) return 0;
  const double ms = value->is_number() ? value->get<double>() : -1;
  if (ms >= 0 && ms <= max_arrival_ms) return ms;
  faults.add(fmt::format("'timestamp' is {}; allowed: milliseconds from 0 to {}", shown(*value),
                         max_arrival_ms));
  return 0;
}

std::vector<std::uint64_t> read_hashes(const Json& line, std::int64_t input_length,
                                       Faults& faults) {
  const Json* value = find(line, "hash_ids", faults);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    faults.add(fmt::format("'hash_ids' is {}; allowed: an array of integers", shown(*value)));
    return {};
  }
  const std::int64_t wanted = (input_length + group_tokens - 1) / group_tokens;
  if (std::cmp_not_equal(value->size(), wanted)) {
    faults.add(fmt::format("'hash_ids' has {} ids; allowed: {}, one per {} of {} prompt tokens",
                           value->size(), wanted, group_tokens, input_length));
    return {};
  }
  std::vector<std::uint64_t> ids;
  ids.reserve(value->size());
  for (const Json& id : *value) {
    if (!id.is_number_unsigned()) {
      faults.add(fmt::format("'hash_ids[{}]' is {}; allowed: an integer from 0 to 2^64 - 1",
                             ids.size(), shown(id)));
      return {};
    }
    ids.push_back(id.get<std::uint64_t>());
  }
  return ids;
}

TraceRequest parse_mooncake(std::string_view text, double earlier, Faults& faults) {
  TraceRequest request;
  request.arrival_ms = earlier;
  const cli::JsonObject object = cli::read_json_object(text);
  if (!object.fault.empty()) {
    faults.add(fmt::format("the line {}: {}", excerpt(object.fault), excerpt(text)));
    return request;
  }
  const Json& line = object.value;
  const std::size_t before = faults.count();
  request.arrival_ms = read_arrival(line, faults);
  request.input_length = read_integer(line, "input_length", 1, max_context, faults);
  request.output_length = read_integer(line, "output_length", 0, max_context, faults);
  const bool lengths_known = faults.count() == before;
  if (lengths_known) {
    request.hash_ids = read_hashes(line, request.input_length, faults);
    check(request, earlier, "timestamp", faults);
  }
  return request;
}

// ---- Azure ----

/// Where the three columns stand in a row.
struct Columns {
  static constexpr std::array<std::string_view, 3> names = {"arrival_ms", "input_length",
                                                            "output_length"};
  std::array<std::size_t, 3> at{};
  std::size_t count = 0;
};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> cells;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    cells.push_back(trim(text.substr(begin, comma - begin)));
    if (comma == std::string_view::npos) return cells;
    begin = comma + 1;
  }
}

Columns parse_header(std::string_view text, Faults& faults) {
  const std::vector<std::string_view> cells = split(text);
  Columns columns;
  columns.count = cells.size();
  for (std::size_t i = 0; i < Columns::names.size(); ++i) {
    const auto it = std::find(cells.begin(), cells.end(), Columns::names[i]);
    columns.at[i] = static_cast<std::size_t>(it - cells.begin());
    if (it == cells.end()) {
      faults.add(
          fmt::format("column '{}' is missing in the header '{}' (a trace is JSON lines or "
                      "CSV with arrival_ms, input_length and output_length)",
                      Columns::names[i], excerpt(text)));
    }
  }
  faults.raise();
  return columns;
}

std::int64_t parse_integer(std::string_view cell, std::string_view name, std::int64_t lowest,
                           Faults& faults) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error == std::errc{} && end == cell.data() + cell.size() && value >= lowest &&
      value <= max_context) {
    return value;
  }
  faults.add(fmt::format("'{}' is '{}'; allowed: an integer from {} to {}", name, excerpt(cell),
                         lowest, max_context));
  return lowest;
}

double parse_arrival(std::string_view cell, Faults& faults) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error == std::errc{} && end == cell.data() + cell.size() && value >= 0 &&
      value <= max_arrival_ms) {
    return value;
  }
  faults.add(fmt::format("'arrival_ms' is '{}'; allowed: milliseconds from 0 to {}", excerpt(cell),
                         max_arrival_ms));
  return 0;
}

TraceRequest parse_azure(std::string_view text, const Columns& columns, double earlier,
                         Faults& faults) {
  TraceRequest request;
  request.arrival_ms = earlier;
  const std::vector<std::string_view> cells = split(text);
  if (cells.size() != columns.count) {
    faults.add(fmt::format("the row has {} cells; allowed: {}, as the header", cells.size(),
                           columns.count));
    return request;
  }
  request.arrival_ms = parse_arrival(cells[columns.at[0]], faults);
  request.input_length = parse_integer(cells[columns.at[1]], "input_length", 1, faults);
  request.output_length = parse_integer(cells[columns.at[2]], "output_length", 0, faults);
  check(request, earlier, "arrival_ms", faults);
  return request;
}

/// The next line, of bounded length; false at the end of the file.
bool next_line(std::istream& in, std::string& line, Faults& faults) {
  if (!std::getline(in, line)) return false;
  if (line.size() > max_line_bytes) {
    faults.add(fmt::format("the line has {} bytes; allowed: {}", line.size(), max_line_bytes));
    line.clear();
  }
  return true;
}

}  // namespace

std::vector<TraceRequest> read_trace(std::istream& in, std::string_view name, std::int64_t limit) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  std::vector<TraceRequest> requests;
  Faults faults(name);
  std::optional<Columns> columns;
  bool json = false;
  bool begun = false;
  double earlier = 0;
  std::string line;
  for (std::int64_t number = 1; limit == 0 || std::cmp_less(requests.size(), limit); ++number) {
    faults.at_line(number);
    if (!next_line(in, line, faults)) break;
    std::string_view text = line;
    if (number == 1 && text.starts_with(byte_order_mark)) text.remove_prefix(3);
    text = trim(text);
    if (text.empty()) continue;
    if (!begun) {
      begun = true;
      json = text.front() == '{';
      if (!json) {
        columns = parse_header(text, faults);
        continue;
      }
    }
    requests.push_back(json ? parse_mooncake(text, earlier, faults)
                            : parse_azure(text, *columns, earlier, faults));
    earlier = std::max(earlier, requests.back().arrival_ms);
  }
  faults.raise();
  if (in.bad()) throw Error(ErrorCode::io, fmt::format("{}: cannot be read", name));
  if (requests.empty()) throw Error(ErrorCode::io, fmt::format("{}: holds no request", name));
  return requests;
}

std::vector<TraceRequest> load_trace(const std::string& path, std::int64_t limit) {
  std::ifstream in(path);
  if (!in) {
    throw Error(ErrorCode::io,
                fmt::format("{}: cannot be opened ({})", path, std::strerror(errno)));
  }
  return read_trace(in, path, limit);
}

}  // namespace msa::replay
