// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "api/check.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>

#include "common/step.h"

namespace msa {
namespace {

std::string list(const std::int64_t* values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + "]";
}

std::string expected_shape(const TensorRule& rule) {
  std::string text = "[";
  for (std::size_t i = 0; i < rule.extents.size(); ++i) {
    const Extent& e = rule.extents[i];
    text += i == 0 ? "" : ", ";
    const std::string number = std::to_string(e.value);
    switch (e.rule) {
      case Extent::Rule::any:
        text += e.label;
        break;
      case Extent::Rule::exactly:
        text += number == e.label ? number : cat(e.label, " = ", number);
        break;
      case Extent::Rule::at_least:
        text += cat(e.label, " ≥ ", number);
        break;
    }
  }
  text += "]";
  return rule.other_form == nullptr ? text : cat(text, " or ", rule.other_form);
}

thread_local const Dialect* dialect = nullptr;

std::string names(const DTypes& dtypes) {
  std::string text;
  for (DType d : dtypes) text += (text.empty() ? "" : ", ") + std::string(name(d));
  return text;
}

/// False for a view whose rank counts dimensions that it has no room for.
bool rank_exists(const ConstTensor& t) { return t.rank >= 0 && t.rank <= ConstTensor::max_rank; }

/// This and all below look at the dimensions of views whose rank exists.
bool empty(const ConstTensor& t) {
  return std::any_of(t.shape.begin(), t.shape.begin() + t.rank,
                     [](std::int64_t d) { return d <= 0; });
}

/// Whether the elements, each counted by its indices, have fewer than 2^63 bytes; an extent of 0
/// counts as 1. It bounds every product of a view's extents, also where strides of 0 or an empty
/// dimension leave little or nothing to span.
bool countable(const ConstTensor& t) {
  auto bytes = static_cast<std::int64_t>(size_of(t.dtype));
  return std::none_of(t.shape.begin(), t.shape.begin() + t.rank, [&](std::int64_t d) {
    return __builtin_mul_overflow(bytes, std::max<std::int64_t>(d, 1), &bytes);
  });
}

/// False for a view that runs backwards: no operator takes one.
bool runs_forward(const ConstTensor& t) {
  for (int i = 0; i < t.rank; ++i) {
    if (step(t, i) < 0) return false;
  }
  return true;
}

/// Sufficient and, for views of one allocation, natural: with dimensions in order of stride, each
/// step clears all that the smaller ones span.
bool elements_share_memory(const ConstTensor& t) {
  if (empty(t)) return false;
  std::array<int, ConstTensor::max_rank> order{};
  int count = 0;
  for (int i = 0; i < t.rank; ++i) {
    if (t.shape[i] <= 1) continue;
    int at = count++;
    for (; at > 0 && t.stride[order[at - 1]] > t.stride[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  std::int64_t inner = 0;  // offset of the last element of the smaller dimensions
  for (int n = 0; n < count; ++n) {
    const int i = order[n];
    if (t.stride[i] <= inner) return true;
    inner += (t.shape[i] - 1) * t.stride[i];
  }
  return false;
}

/// A dimension of two views in which one of them moves, or both do by the same stride.
struct SharedStep {
  std::int64_t stride;  // positive
  std::int64_t indices_a;
  std::int64_t indices_b;
};

/// The steps of two views, largest first, each larger than all that the smaller ones span together;
/// nothing where there are none such.
std::optional<std::vector<SharedStep>> shared_steps(const ConstTensor& a, const ConstTensor& b) {
  if (a.rank != b.rank || size_of(a.dtype) != size_of(b.dtype)) return std::nullopt;
  std::vector<SharedStep> steps;
  for (int i = 0; i < a.rank; ++i) {
    const std::int64_t step_a = step(a, i), step_b = step(b, i);
    if (a.shape[i] > 1 && b.shape[i] > 1 && step_a != step_b) return std::nullopt;
    const std::int64_t stride = std::max(step_a, step_b);
    if (stride > 0) steps.push_back({stride, a.shape[i], b.shape[i]});
  }
  std::sort(steps.begin(), steps.end(),
            [](const SharedStep& x, const SharedStep& y) { return x.stride < y.stride; });
  std::int64_t inner = 0;  // what the smaller steps span
  for (const SharedStep& s : steps) {
    if (s.stride <= inner) return std::nullopt;
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(std::max(s.indices_a, s.indices_b) - 1, s.stride, &reach) ||
        __builtin_add_overflow(inner, reach, &inner)) {
      return std::nullopt;
    }
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

/// Whether two views of shared steps meet: some index difference cancels `distance`, the elements
/// from a's first to b's first. Since the smaller steps together span less than one of the largest,
/// only the two nearest multiples of it can lead to a meeting.
bool meet(std::int64_t distance, std::span<const SharedStep> steps) {
  if (steps.empty()) return distance == 0;
  const SharedStep& s = steps.front();
  const std::int64_t down = distance / s.stride - (distance % s.stride < 0 ? 1 : 0);
  for (const std::int64_t n : {down, down + 1}) {  // a's index minus b's index
    if (n >= s.indices_a || n <= -s.indices_b) continue;
    if (meet(distance - n * s.stride, steps.subspan(1))) return true;
  }
  return false;
}

/// What overlap() looks at first: the addresses that a view spans.
struct Span {
  std::uintptr_t begin = 0;
  std::uint64_t bytes = 0;

  /// Of a view that is nowhere: it meets nothing. Where the bytes leave 63 bits: all that follow.
  explicit Span(const ConstTensor& t) {
    if (!rank_exists(t) || t.data == nullptr || empty(t) || !runs_forward(t)) return;
    begin = reinterpret_cast<std::uintptr_t>(t.data);
    const std::optional<std::int64_t> spanned = span_bytes(t);
    bytes = spanned ? static_cast<std::uint64_t>(*spanned) : ~std::uint64_t{0};
  }
  Span() = default;

  /// The end of a view that is not there may lie past all addresses: differences, not sums.
  bool meets(const Span& other) const {
    if (bytes == 0 || other.bytes == 0) return false;
    return begin <= other.begin ? other.begin - begin < bytes : begin - other.begin < other.bytes;
  }
};

}  // namespace

Dialect::Dialect() : outer_(dialect) { dialect = this; }
Dialect::~Dialect() { dialect = outer_; }

std::string type_name(DType type) {
  return dialect == nullptr ? std::string(name(type)) : dialect->type(type);
}

std::optional<std::int64_t> span_bytes(const ConstTensor& t, int first_dim) {
  if (empty(t)) return 0;
  std::int64_t last = 0;
  for (int i = first_dim; i < t.rank; ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(t.shape[i] - 1, t.stride[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return std::nullopt;
    }
  }
  std::int64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, static_cast<std::int64_t>(size_of(t.dtype)), &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

/// Exact for views of equal strides (K and V of one packed row, slices of one buffer); for equal
/// rows of different insides the rows' ranges are compared; anything else counts by its address
/// range. A rank that does not exist and strides below 0 say nothing of what the view spans; they
/// are reported as such.
bool overlap(const ConstTensor& a, const ConstTensor& b) {
  if (!rank_exists(a) || !rank_exists(b)) return false;
  if (a.data == nullptr || b.data == nullptr || empty(a) || empty(b)) return false;
  if (!runs_forward(a) || !runs_forward(b)) return false;
  if (!span_bytes(a) || !span_bytes(b)) return true;
  const Span span_a(a), span_b(b);
  if (!span_a.meets(span_b)) return false;
  const auto distance = static_cast<std::int64_t>(span_b.begin - span_a.begin);
  if (const auto steps = shared_steps(a, b)) {
    const auto size = static_cast<std::int64_t>(size_of(a.dtype));
    return distance % size != 0 || meet(distance / size, *steps);
  }
  if (a.rank < 2 || b.rank < 2) return true;
  const std::int64_t row_a = step_bytes(a, 0), row_b = step_bytes(b, 0);
  const std::int64_t row = std::max(row_a, row_b);
  // A single row may be one of any rows.
  const bool same_rows = row > 0 && (row_a == row_b || row_a == 0 || row_b == 0);
  if (!same_rows) return true;
  const std::int64_t inner_a = *span_bytes(a, 1), inner_b = *span_bytes(b, 1);
  const std::int64_t remainder = -distance % row;
  const std::int64_t offset = remainder < 0 ? remainder + row : remainder;  // of a's row within b's
  return offset < inner_b || offset > row - inner_a;
}

std::ostream& operator<<(std::ostream& text, const Description& description) {
  const ConstTensor& tensor = description.tensor;
  if (!rank_exists(tensor)) {
    return text << "rank " << tensor.rank << ", of at most " << ConstTensor::max_rank;
  }
  return text << "shape " << list(tensor.shape.data(), tensor.rank) << ", strides "
              << list(tensor.stride.data(), tensor.rank);
}

ConstTensor memory_of(const Workspace& workspace) {
  return ConstTensor::dense(workspace.data, DType::u8,
                            {static_cast<std::int64_t>(workspace.bytes)});
}

void Checker::show_as(std::string_view argument, std::string_view shown) {
  shown_as_.emplace_back(argument, shown);
}

std::string Checker::shown(std::string_view argument) const {
  const std::size_t owner = std::min(argument.find('.'), argument.size());
  for (const auto& [name, shown] : shown_as_) {
    if (argument.substr(0, owner) == name) return shown + std::string(argument.substr(owner));
  }
  return dialect == nullptr ? std::string(argument) : dialect->argument(argument);
}

void Checker::settle(std::string_view argument) { settled_.emplace_back(argument); }

bool Checker::settled(std::string_view argument) const {
  return std::find(settled_.begin(), settled_.end(), argument) != settled_.end();
}

void Checker::fail(std::string_view argument, std::string_view what) {
  failures_.push_back(cat(op_, ": argument '", shown(argument), "' ", what));
}

bool Checker::range(std::string_view argument, std::int64_t value, std::int64_t low,
                    std::int64_t high, std::string_view why) {
  if (value >= low && value <= high) return true;
  const std::string upper =
      high == std::numeric_limits<std::int64_t>::max() ? "" : cat(" and at most ", high);
  fail(argument, cat("is ", value, "; allowed: at least ", low, upper, why));
  return false;
}

bool Checker::tensor(std::string_view argument, const ConstTensor& t, const TensorRule& rule) {
  if (settled(argument)) return false;
  if (!t.given()) {
    fail(argument,
         cat("is missing; expected ", expected_shape(rule), " of type ", names(rule.dtypes)));
    return false;
  }
  if (std::find(rule.dtypes.begin(), rule.dtypes.end(), t.dtype) == rule.dtypes.end()) {
    const std::string_view typing =
        dialect == nullptr ? "give bytes their fp8 type with as(DType)" : dialect->typing();
    const std::string hint = t.dtype == DType::u8 ? cat("; ", typing) : "";
    fail(argument, cat("has dtype ", type_name(t.dtype), "; allowed: ", names(rule.dtypes), " (",
                       describe(t), ")", hint));
  }
  if (!rank_exists(t)) {
    fail(argument, cat("has rank ", t.rank, "; allowed: that of ", expected_shape(rule)));
    return false;
  }
  if (t.rank != static_cast<int>(rule.extents.size())) {
    fail(argument, cat("has ", t.rank, " dimensions; expected ", expected_shape(rule), " (",
                       describe(t), ")"));
    return false;
  }
  bool strides_ok = true;
  for (int i = 0; i < t.rank; ++i) {
    const Extent& e = rule.extents[static_cast<std::size_t>(i)];
    const bool fits = e.rule == Extent::Rule::exactly    ? t.shape[i] == e.value
                      : e.rule == Extent::Rule::at_least ? t.shape[i] >= e.value
                                                         : true;
    if (!fits || t.shape[i] < 0) {
      fail(argument, cat("has ", t.shape[i], " in dimension ", i, "; expected ",
                         expected_shape(rule), " (", describe(t), ")"));
    }
    if (t.stride[i] < 0) {
      fail(argument, cat("has the negative stride ", t.stride[i], " in dimension ", i, " (",
                         describe(t), ")"));
      strides_ok = false;
    }
  }
  const int last = t.rank - 1;
  if (rule.dense_last && t.shape[last] > 1 && t.stride[last] != 1) {
    fail(argument, cat("has last stride ", t.stride[last], "; allowed: 1 (", describe(t), ")"));
  }
  if (!strides_ok) return true;
  if (!span_bytes(t)) {
    fail(argument, cat("spans more than 2^63 bytes (", describe(t), ")"));
  } else if (!countable(t)) {
    fail(argument, cat("has extents whose product is more than 2^63 bytes (", describe(t), ")"));
  } else if (rule.output && elements_share_memory(t)) {
    fail(argument,
         cat("is written, but its strides make elements share memory (", describe(t), ")"));
  }
  if (scope_ == Scope::call) {
    if (t.data == nullptr && rule.touched && !empty(t)) {
      fail(argument, cat("has a null pointer (", describe(t), ")"));
    }
    const std::size_t size = std::max<std::size_t>(size_of(t.dtype), 1);
    if (reinterpret_cast<std::uintptr_t>(t.data) % size != 0) {
      fail(argument,
           cat("is not aligned to its element size of ", size, " bytes (address ", t.data, ")"));
    }
  }
  return true;
}

bool Checker::known_device(const Region& region) {
  if (!region.tensor.given()) return true;
  switch (region.tensor.device.type) {
    case DeviceType::cpu:
    case DeviceType::cuda:
    case DeviceType::cuda_host:
      return true;
  }
  fail(region.name, cat("has device type ", static_cast<int>(region.tensor.device.type),
                        "; allowed: cpu, cuda, cuda_host"));
  return false;
}

void Checker::same_device(std::initializer_list<Region> tensors) {
  std::vector<const Region*> all;
  for (const Region& r : tensors) all.push_back(&r);
  same_device(all);
}

void Checker::same_device(std::span<const Region* const> tensors) {
  const Region* first = nullptr;
  for (const Region* tensor : tensors) {
    const Region& r = *tensor;
    if (!r.tensor.given() || !known_device(r)) continue;
    if (first == nullptr) first = &r;
    // Pinned host memory is host memory to a host backend.
    const auto kind = [](Device d) {
      return d.type == DeviceType::cuda ? d : Device{DeviceType::cpu, 0};
    };
    if (kind(r.tensor.device) != kind(first->tensor.device)) {
      fail(r.name, cat("is on device ", name(r.tensor.device.type), ":", r.tensor.device.index,
                       "; expected the device of '", shown(first->name), "', ",
                       name(first->tensor.device.type), ":", first->tensor.device.index));
    }
  }
}

void Checker::disjoint(const Region& output, const std::vector<Region>& others) {
  if (scope_ == Scope::shapes || settled(output.name)) return;
  for (const Region& r : others) {
    if (!settled(r.name) && overlap(output.tensor, r.tensor)) {
      fail(output.name,
           cat("shares memory with '", shown(r.name), "' (", describe(output.tensor), " at ",
               output.tensor.data, " against ", describe(r.tensor), " at ", r.tensor.data, ")"));
    }
  }
}

void Checker::placement(const Regions& inputs, const Regions& outputs, const Workspace& workspace) {
  // Inputs, then outputs; last the workspace, written too, though its contents never matter: what a
  // call reads must not lie in it.
  constexpr std::size_t most = 2 * Regions::most + 1;
  std::array<const Region*, most> all;
  std::size_t count = 0;
  for (const Region& input : inputs) all[count++] = &input;
  for (const Region& output : outputs) all[count++] = &output;
  same_device(std::span<const Region* const>(all.data(), count));
  if (scope_ == Scope::shapes) return;
  const Region scratch{"workspace", memory_of(workspace)};
  all[count] = &scratch;
  // Spans are made once: most pairs are apart by them.
  std::array<Span, most> spans;
  for (std::size_t i = 0; i <= count; ++i) spans[i] = Span(all[i]->tensor);
  const auto compare = [&](std::size_t output, std::size_t other) {
    if (spans[output].meets(spans[other])) disjoint(*all[output], {*all[other]});
  };
  const std::size_t first_output = inputs.size();
  for (std::size_t i = 0; i < first_output; ++i) compare(count, i);
  for (std::size_t output = first_output; output < count; ++output) {
    for (std::size_t i = 0; i < first_output; ++i) compare(output, i);
    for (std::size_t i = output + 1; i <= count; ++i) compare(output, i);
  }
}

void Checker::factor(std::string_view argument, float value) {
  // By its bits: to a caller whose thread takes denormals for 0 the same factors are allowed.
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto infinity = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());
  require(bits > 0 && bits < infinity, argument, "is ", value,
          "; allowed: one finite positive factor for the whole tensor (scales per head or "
          "slot are not supported)");
}

void Checker::scale(std::string_view argument, const Scale& scale) {
  if (!scale.tensor.given()) {
    factor(argument, scale.value);
    return;
  }
  if (!rank_exists(scale.tensor)) {
    fail(argument, cat("has rank ", scale.tensor.rank, "; allowed: 0 to ", ConstTensor::max_rank));
    return;
  }
  if (scale.tensor.dtype != DType::f32 || scale.tensor.numel() != 1) {
    fail(argument, cat("is a tensor of dtype ", type_name(scale.tensor.dtype), " with ",
                       describe(scale.tensor),
                       "; allowed: a host number or one f32 (scales per head or slot are not "
                       "supported)"));
    return;
  }
  if (scope_ == Scope::call) {
    require(scale.tensor.data != nullptr, argument, "has a null pointer");
    require(reinterpret_cast<std::uintptr_t>(scale.tensor.data) % sizeof(float) == 0, argument,
            "is not aligned to its element size of 4 bytes");
  }
}

void Checker::raise(ErrorCode code) const {
  if (!failures_.empty()) throw Error(code, failures_);
}

std::int64_t check_kv_cache(Checker& check, const ConstKVCache& cache, bool output) {
  const DTypes types = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};
  const auto rule = [&](std::int64_t content) {
    return TensorRule{
        .dtypes = types,
        .extents = {Extent::any("pages"), Extent::at_least("Hkv", 1), Extent::any("128"),
                    Extent::exactly(content == head_dim ? "128" : "256", content)},
        .dense_last = true,
        .output = output};
  };
  const auto block_size = [&](const char* argument, const ConstTensor& t) {
    check.require(t.shape[2] == page_size, argument, "has pages of ", t.shape[2],
                  " tokens; allowed: ", page_size, ", the size of a selectable block (",
                  describe(t), ")");
  };
  if (cache.packed.given()) {
    check.require(!cache.k.given() && !cache.v.given(), "kv_cache",
                  "is given together with separate K or V views; allowed: one packed view, or K "
                  "and V");
    if (!check.tensor("kv_cache", cache.packed, rule(2 * head_dim))) return 0;
    block_size("kv_cache", cache.packed);
    return cache.packed.shape[1];
  }
  if (!cache.k.given() && !cache.v.given()) {
    check.tensor("kv_cache", cache.packed, rule(2 * head_dim));
    return 0;
  }
  const bool k_ok = check.tensor("k_cache", cache.k, rule(head_dim));
  const bool v_ok = check.tensor("v_cache", cache.v, rule(head_dim));
  if (k_ok) block_size("k_cache", cache.k);
  if (v_ok) block_size("v_cache", cache.v);
  if (k_ok && v_ok) {
    // What stands past the rank is no extent.
    const bool same_shape = std::equal(cache.k.shape.begin(), cache.k.shape.begin() + cache.k.rank,
                                       cache.v.shape.begin());
    check.require(same_shape && cache.k.dtype == cache.v.dtype, "v_cache", "is ",
                  type_name(cache.v.dtype), " of ", describe(cache.v),
                  "; expected k_cache's type and shape, ", type_name(cache.k.dtype), " of ",
                  describe(cache.k));
  }
  return k_ok ? cache.k.shape[1] : 0;
}

bool metadata_checks_enabled() {
  const char* value = std::getenv("MSA_CHECK");
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  throw Error(ErrorCode::invalid_argument,
              cat("environment variable MSA_CHECK is '", text, "'; allowed: 0, 1"));
}

}  // namespace msa
