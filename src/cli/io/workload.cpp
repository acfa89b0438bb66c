// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/workload.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/io/json_object.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<WorkloadOp, const char*>, 5> op_names = {
    {{WorkloadOp::decode, "decode"},
     {WorkloadOp::prefill, "prefill"},
     {WorkloadOp::index, "index"},
     {WorkloadOp::write, "write"},
     {WorkloadOp::layer, "layer"}}};

constexpr std::int64_t largest_context = std::int64_t{1} << 30;
constexpr std::int64_t largest_count = std::int64_t{1} << 20;
constexpr std::size_t longest_line = 4096;
constexpr std::size_t most_failures = 20;

using Failures = std::vector<std::string>;

void check_range(Failures& failures, const char* key, std::int64_t value, std::int64_t low,
                 std::int64_t high) {
  if (value < low || value > high) {
    failures.push_back(fmt::format("'{}' is {}; allowed: {} to {}", key, value, low, high));
  }
}

/// The fields of one line.
class LineReader {
 public:
  explicit LineReader(const json& object) : object_(object) {}

  void integer(const char* key, std::int64_t& value) {
    const json* found = take(key);
    if (found == nullptr) return;
    const bool fits =
        found->is_number_integer() &&
        (!found->is_number_unsigned() ||
         found->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    if (fits) {
      value = found->get<std::int64_t>();
    } else {
      wrong(key, *found, "a whole number");
    }
  }

  void seed(const char* key, std::uint64_t& value) {
    const json* found = take(key);
    if (found == nullptr) return;
    if (found->is_number_unsigned()) {
      value = found->get<std::uint64_t>();
    } else {
      wrong(key, *found, "a whole number ≥ 0");
    }
  }

  void flag(const char* key, bool& value) {
    const json* found = take(key);
    if (found == nullptr) return;
    if (found->is_boolean()) {
      value = found->get<bool>();
    } else {
      wrong(key, *found, "true or false");
    }
  }

  void text(const char* key, std::string& value) {
    const json* found = take(key);
    if (found == nullptr) return;
    if (found->is_string()) {
      value = found->get<std::string>();
    } else {
      wrong(key, *found, "a file's name");
    }
  }

  /// A share from 0 to 1, kept in permille.
  void share(const char* key, std::int64_t& permille) {
    const json* found = take(key);
    if (found == nullptr) return;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (value >= 0 && value <= 1) {
      permille = std::llround(value * 1000);
    } else {
      wrong(key, *found, "a number from 0 to 1");
    }
  }

  /// A name that `parse` understands.
  template <class Value, class Parse>
  void word(const char* key, Value& value, Parse parse, const char* allowed) {
    const json* found = take(key);
    if (found == nullptr) return;
    const auto parsed = found->is_string() ? parse(found->get<std::string>()) : std::nullopt;
    if (parsed) {
      value = *parsed;
    } else {
      wrong(key, *found, allowed);
    }
  }

  void require(const char* key) {
    if (!object_.contains(key)) failures_.push_back(fmt::format("has no '{}'", key));
  }

  /// Reports keys that nobody asked for, and hands over all that is wrong.
  Failures finish() {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        failures_.push_back(
            fmt::format("has the unknown key '{}'; allowed: {}", key, fmt::join(known_, ", ")));
      }
    }
    return std::move(failures_);
  }

 private:
  const json* take(const char* key) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  void wrong(const char* key, const json& value, const char* allowed) {
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    failures_.push_back(fmt::format("'{}' is {}; allowed: {}", key, text, allowed));
  }

  const json& object_;
  std::vector<std::string> known_;
  Failures failures_;
};

Failures read_line(const std::string& text, Workload& workload) {
  if (text.size() > longest_line) {
    return {fmt::format("is {} bytes long; allowed: {}", text.size(), longest_line)};
  }
  const JsonObject object = read_json_object(text);
  if (!object.fault.empty()) return {object.fault};
  LineReader reader(object.value);
  std::int64_t version = workload_version;
  reader.integer("version", version);
  reader.require("op");
  reader.word("op", workload.op, parse_workload_op, "decode, prefill, index, write, layer");
  reader.integer("hq", workload.hq);
  reader.integer("hkv", workload.hkv);
  reader.word("kv", workload.kv, parse_dtype, "bf16, f16, e4m3, e5m2");
  reader.word("layout", workload.layout, parse_kv_layout,
              "LBHNC, LBNHC, LHBNC, BLHNC, BLNHC, BHLNC");
  reader.integer("m", workload.m);
  reader.integer("tokens", workload.tokens);
  reader.integer("batch", workload.batch);
  reader.integer("context", workload.context);
  reader.share("keep", workload.keep);
  reader.seed("seed", workload.seed);
  reader.text("selection", workload.selection);
  reader.flag("dense", workload.dense);
  Failures failures = reader.finish();
  if (version != workload_version) {
    failures.push_back(
        fmt::format("'version' is {}; this program reads {}", version, workload_version));
  }
  if (failures.empty()) failures = problems(workload);
  return failures;
}

}  // namespace

const char* name(WorkloadOp op) {
  for (const auto& [value, text] : op_names) {
    if (value == op) return text;
  }
  return "invalid";
}

std::optional<WorkloadOp> parse_workload_op(std::string_view text) {
  for (const auto& [value, name] : op_names) {
    if (text == name) return value;
  }
  return std::nullopt;
}

std::string label(const Workload& w) {
  std::string text =
      fmt::format("{} {}/{} {} {}", name(w.op), w.hq, w.hkv, name(w.kv), name(w.layout));
  const bool by_m = w.is_decode() || w.op == WorkloadOp::decode;
  text += by_m ? fmt::format(" m {}", w.m) : fmt::format(" tokens {}", w.tokens);
  text += fmt::format(" batch {}", w.batch);
  if (w.op == WorkloadOp::write) return text;
  text += fmt::format(" context {}", w.context);
  if (w.dense) text += " dense";
  if (w.op == WorkloadOp::prefill) {
    if (w.selection.empty())
      return text + fmt::format(" keep {:g}", static_cast<double>(w.keep) / 1000);
    text += fmt::format(" selection {}", w.selection.substr(w.selection.rfind('/') + 1));
  }
  return text;
}

std::vector<std::string> problems(const Workload& w) {
  Failures failures;
  check_range(failures, "hkv", w.hkv, 1, max_index_heads);
  check_range(failures, "hq", w.hq, 1, max_index_heads * max_group);
  if (failures.empty() && (w.hq % w.hkv != 0 || w.hq / w.hkv > max_group)) {
    failures.push_back(
        fmt::format("'hq' is {}; allowed: 1 to {} times 'hkv' = {}", w.hq, max_group, w.hkv));
  }
  if (w.kv != DType::bf16 && w.kv != DType::f16 && w.kv != DType::e4m3 && w.kv != DType::e5m2) {
    failures.push_back(fmt::format("'kv' is {}; allowed: bf16, f16, e4m3, e5m2", name(w.kv)));
  }
  // Zero is what stands for a length that was not given.
  if (w.m != 0) check_range(failures, "m", w.m, 1, max_decode_query_len);
  if (w.tokens != 0) check_range(failures, "tokens", w.tokens, 1, largest_count);
  check_range(failures, "batch", w.batch, 1, largest_count);
  check_range(failures, "context", w.context, 0, largest_context);
  check_range(failures, "keep", w.keep, 0, 1000);
  const auto give = [&](const char* what) {
    failures.push_back(fmt::format("{} {} workload needs {}",
                                   w.op == WorkloadOp::index ? "an" : "a", name(w.op), what));
  };
  if (w.op == WorkloadOp::decode && (w.m == 0 || w.tokens != 0)) {
    give("'m' of at least 1 and no 'tokens'");
  }
  if ((w.op == WorkloadOp::prefill || w.op == WorkloadOp::write) && (w.tokens == 0 || w.m != 0)) {
    give("'tokens' of at least 1 and no 'm'");
  }
  if ((w.op == WorkloadOp::index || w.op == WorkloadOp::layer) && (w.m == 0) == (w.tokens == 0)) {
    give("either 'm' or 'tokens', of at least 1");
  }
  if (w.is_decode() && w.context < w.m) give("a 'context' of at least 'm' keys");
  if (w.dense && !w.may_be_dense()) {
    failures.emplace_back("'dense' is true; allowed: decode, and layer with 'm'");
  }
  if (!w.selection.empty() && (w.op != WorkloadOp::prefill || w.batch != 1)) {
    failures.push_back(
        fmt::format("'selection' is {}; allowed: prefill of one request", w.selection));
  }
  return failures;
}

nlohmann::ordered_json to_json(const Workload& w) {
  nlohmann::ordered_json object = {{"version", workload_version},
                                   {"op", name(w.op)},
                                   {"hq", w.hq},
                                   {"hkv", w.hkv},
                                   {"kv", name(w.kv)},
                                   {"layout", name(w.layout)}};
  if (w.is_decode()) {
    object["m"] = w.m;
  } else {
    object["tokens"] = w.tokens;
  }
  object["batch"] = w.batch;
  object["context"] = w.context;
  object["keep"] = static_cast<double>(w.keep) / 1000;
  object["seed"] = w.seed;
  if (!w.selection.empty()) object["selection"] = w.selection;
  if (w.dense) object["dense"] = true;
  return object;
}

std::vector<Workload> read_workloads(std::istream& stream, const std::string& label) {
  std::vector<Workload> workloads;
  Failures failures;
  std::int64_t number = 0;
  for (std::string line; std::getline(stream, line) && failures.size() < most_failures;) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    Workload workload;
    for (const std::string& failure : read_line(line, workload)) {
      failures.push_back(fmt::format("{}:{}: {}", label, number, failure));
    }
    workloads.push_back(workload);
  }
  if (failures.empty() && workloads.empty()) {
    failures.push_back(fmt::format("{}: holds no workload", label));
  }
  if (!failures.empty()) throw Error(ErrorCode::io, std::move(failures));
  return workloads;
}

std::vector<Workload> read_workloads(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::io, fmt::format("{}: {}", path, std::strerror(errno)));
  return read_workloads(file, path);
}

}  // namespace msa::cli
