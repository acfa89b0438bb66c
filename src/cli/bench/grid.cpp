// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "msa/error.h"

namespace msa::cli {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "bench: " + what);
}

void set_shard(Workload& w, const std::string& text) {
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, w.hq);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, w.hkv);
    if (second.ec == std::errc() && second.ptr == end) return;
  }
  fail(fmt::format("--shard is '{}'; expected HQ/HKV, such as 16/1", text));
}

void set_kv(Workload& w, const std::string& text) {
  const auto type = parse_dtype(text);
  if (!type) fail(fmt::format("--kv is '{}'; expected bf16, f16, e4m3 or e5m2", text));
  w.kv = *type;
}

void set_layout(Workload& w, const std::string& text) {
  const auto layout = parse_kv_layout(text);
  if (!layout) {
    fail(
        fmt::format("--layout is '{}'; expected LBHNC, LBNHC, LHBNC, BLHNC, BLNHC or BHLNC", text));
  }
  w.layout = *layout;
}

/// A workload is of decode or of prefill shape: giving one length takes the other away, where the
/// operator takes both. Where both lengths are given, each replaces its own kind.
void set_m(Workload& w, std::int64_t m) {
  if (w.op == WorkloadOp::prefill || w.op == WorkloadOp::write) return;
  w.m = m;
  w.tokens = 0;
}
void set_tokens(Workload& w, std::int64_t tokens) {
  if (w.op == WorkloadOp::decode) return;
  w.tokens = tokens;
  w.m = 0;
}

/// Replaces each workload that `takes` says by one for each value; no values leave them alone.
template <class Value, class Set, class Takes>
void spread(std::vector<Workload>& workloads, const std::vector<Value>& values, Set set,
            Takes takes) {
  if (values.empty()) return;
  std::vector<Workload> all;
  for (const Workload& workload : workloads) {
    if (!takes(workload)) {
      all.push_back(workload);
      continue;
    }
    for (const Value& value : values) {
      Workload changed = workload;
      set(changed, value);
      all.push_back(changed);
    }
  }
  workloads = std::move(all);
}
template <class Value, class Set>
void spread(std::vector<Workload>& workloads, const std::vector<Value>& values, Set set) {
  spread(workloads, values, set, [](const Workload&) { return true; });
}

/// Lengths and shares that not one of the workloads takes: a table of other shapes than those asked
/// for would look like the answer.
std::vector<std::string> useless(const std::vector<Workload>& workloads, const std::string& op,
                                 const ShapeOptions& options) {
  using enum WorkloadOp;
  struct Shape {
    const char* option;
    bool given;
    std::vector<WorkloadOp> takers;
  };
  const Shape shapes[] = {{"--m", !options.m.empty(), {decode, index, layer}},
                          {"--tokens", !options.tokens.empty(), {prefill, index, write, layer}},
                          {"--keep", !options.keep.empty(), {prefill}},
                          {"--dense", options.dense, {decode, layer}}};
  std::vector<std::string> failures;
  for (const Shape& shape : shapes) {
    const auto takes = [&](const Workload& w) {
      return std::find(shape.takers.begin(), shape.takers.end(), w.op) != shape.takers.end();
    };
    if (!shape.given || workloads.empty() ||
        std::any_of(workloads.begin(), workloads.end(), takes)) {
      continue;
    }
    std::vector<std::string> names;
    for (const WorkloadOp taker : shape.takers) names.emplace_back(name(taker));
    failures.push_back(fmt::format("bench: {} has no use with {}; allowed with {}", shape.option,
                                   op, fmt::join(names, ", ")));
  }
  return failures;
}

}  // namespace

bool ShapeOptions::any() const {
  return !(shard.empty() && kv.empty() && layout.empty() && m.empty() && tokens.empty() &&
           batch.empty() && context.empty() && keep.empty() && seed.empty() && !dense);
}

std::vector<Workload> default_grid() {
  using enum WorkloadOp;
  constexpr std::int64_t long_context = 122'880, middle_context = 24'576;
  return {
      {.op = decode, .m = 1, .batch = 1, .context = 131'072},
      {.op = decode, .m = 1, .batch = 16, .context = 131'072},
      {.op = decode, .kv = DType::e4m3, .m = 1, .batch = 16, .context = 131'072},
      {.op = decode, .m = 4, .batch = 8, .context = 131'072},
      {.op = prefill, .tokens = 512, .context = middle_context, .keep = 970},
      {.op = prefill, .tokens = 512, .context = middle_context, .keep = 900},
      {.op = prefill, .tokens = 512, .context = long_context, .keep = 0},
      {.op = prefill, .kv = DType::e4m3, .tokens = 512, .context = middle_context, .keep = 900},
      {.op = index, .m = 1, .batch = 8, .context = 32'768},
      {.op = index, .kv = DType::e4m3, .m = 1, .batch = 8, .context = 32'768},
      {.op = index, .tokens = 512, .context = middle_context},
      {.op = write, .tokens = 512},
      {.op = layer, .m = 1, .batch = 8, .context = 32'768},
      {.op = layer, .tokens = 512, .context = 8'192},
  };
}

std::vector<Workload> shaped(const std::vector<Workload>& grid, const std::string& op,
                             const ShapeOptions& options) {
  std::vector<Workload> workloads;
  for (const Workload& workload : grid) {
    if (op == "all" || op == name(workload.op)) workloads.push_back(workload);
  }
  std::vector<std::string> failures = useless(workloads, op, options);
  spread(workloads, options.shard, set_shard);
  spread(workloads, options.kv, set_kv);
  spread(workloads, options.layout, set_layout);
  const bool both = !options.m.empty() && !options.tokens.empty();
  spread(workloads, options.m, set_m, [both](const Workload& w) { return !both || w.is_decode(); });
  spread(workloads, options.tokens, set_tokens,
         [both](const Workload& w) { return !both || !w.is_decode(); });
  spread(workloads, options.batch, [](Workload& w, std::int64_t v) { w.batch = v; });
  spread(workloads, options.context, [](Workload& w, std::int64_t v) { w.context = v; });
  spread(workloads, options.keep, [](Workload& w, double v) {
    if (!(v >= 0 && v <= 1)) fail(fmt::format("--keep is {}; allowed: 0 to 1", v));
    w.keep = std::llround(v * 1000);
  });
  spread(workloads, options.seed, [](Workload& w, std::uint64_t v) { w.seed = v; });

  for (Workload& w : workloads) w.dense = w.dense || (options.dense && w.may_be_dense());

  std::vector<Workload> distinct;
  std::set<std::string> known;  // a wrong option breaks every case alike: its first one says so
  for (const Workload& workload : workloads) {
    if (std::find(distinct.begin(), distinct.end(), workload) != distinct.end()) continue;
    distinct.push_back(workload);
    for (const std::string& problem : problems(workload)) {
      if (!known.insert(problem).second) continue;
      failures.push_back(fmt::format("bench: {}: {}", label(workload), problem));
    }
  }
  if (!failures.empty()) throw Error(ErrorCode::invalid_argument, std::move(failures));
  return distinct;
}

}  // namespace msa::cli
