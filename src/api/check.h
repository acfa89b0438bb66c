// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <new>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/few.h"
#include "msa/error.h"
#include "msa/kv_cache.h"
#include "msa/tensor.h"

/// \file
/// What every validator is written with: conditions are collected, then raised all at once.

namespace msa {

/// Text of the arguments, one after the other.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// In a message: "shape [512, 4, 128, 256], strides [131072, 32768, 256, 1]"; of a rank that no
/// view has, the rank alone. The text is made when the message is.
struct Description {
  const ConstTensor& tensor;
};
std::ostream& operator<<(std::ostream& text, const Description& description);
inline Description describe(const ConstTensor& tensor) { return {tensor}; }

/// What one dimension of an argument must be.
struct Extent {
  enum class Rule { exactly, at_least, any };
  const char* label = "";  ///< as in the header's shape comment: "T", "Hq", "128"
  std::int64_t value = 0;
  Rule rule = Rule::any;

  static constexpr Extent exactly(const char* label, std::int64_t value) {
    return {label, value, Rule::exactly};
  }
  /// A negative value is a count that its own check has reported: every extent is at least 0.
  static constexpr Extent at_least(const char* label, std::int64_t value) {
    return {label, value > 0 ? value : 0, Rule::at_least};
  }
  static constexpr Extent any(const char* label) { return {label, 0, Rule::any}; }
};

using DTypes = Few<DType, 6>;
using Extents = Few<Extent, ConstTensor::max_rank>;

/// What a tensor argument must be.
struct TensorRule {
  DTypes dtypes;
  Extents extents;
  bool dense_last = false;  ///< last stride 1
  bool output = false;      ///< its elements must not share memory
  bool touched = true;      ///< false: the call reads and writes nothing of it, null is allowed
  const char* other_form = nullptr;  ///< in a message: another shape that would do
};

/// Bytes from the first element to one past the last, of one index of the dimensions before
/// `first_dim`; nothing where that leaves 63 bits. Strides are not negative here.
std::optional<std::int64_t> span_bytes(const ConstTensor& t, int first_dim = 0);

/// Whether two views have memory in common: exact for equal strides, by address ranges else.
bool overlap(const ConstTensor& a, const ConstTensor& b);

/// A range of memory that belongs to an argument.
struct Region {
  const char* name;
  ConstTensor tensor;
};

/// All inputs of a call, or all its outputs: on the stack, and not a byte of those that are not
/// there is written.
class Regions {
 public:
  static constexpr std::size_t most = 16;

  Regions(std::initializer_list<Region> regions) {
    for (const Region& region : regions) push_back(region);
  }
  Regions(const Regions& other) {
    for (const Region& region : other) push_back(region);
  }
  Regions& operator=(const Regions&) = delete;
  ~Regions() {}

  void push_back(const Region& region) {
    if (size_ == most) throw Error(ErrorCode::internal, "a call has more tensors than Regions");
    new (&regions_[size_++]) Region(region);
  }
  std::size_t size() const { return size_; }
  const Region* begin() const { return regions_; }
  const Region* end() const { return regions_ + size_; }

 private:
  std::size_t size_ = 0;
  union {
    Region regions_[most];
  };
};

/// The bytes of a workspace, which has no shape and no device of its own.
ConstTensor memory_of(const Workspace& workspace);

/// How a caller that does not speak C++ calls what it passes on. While one lives, the messages of
/// its thread's Checkers are in its terms; of two, in those of the later.
class Dialect {
 public:
  Dialect();
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;
  virtual ~Dialect();

  /// The caller's name of an argument, or of what belongs to one ("selection.topk").
  virtual std::string argument(std::string_view name) const = 0;
  /// An element type, which may be none of DType's: a caller's own has a negative value.
  virtual std::string type(DType type) const = 0;
  /// How raw bytes are given their fp8 type.
  virtual std::string_view typing() const = 0;

 private:
  const Dialect* outer_;
};

/// An element type, as the caller calls it.
std::string type_name(DType type);

/// How much of the arguments is there to be checked: a size query has shapes, but not yet memory.
enum class Scope { shapes, call };

/// Collects what is wrong with one call. Messages start with the operator's name and name the
/// argument, its value and what is allowed.
class Checker {
 public:
  explicit Checker(std::string_view op, Scope scope = Scope::call) : op_(op), scope_(scope) {}

  /// Messages name `argument`, and what belongs to it ("selection.topk"), as `shown`: a call that
  /// passes its arguments on to an operator speaks of its own.
  void show_as(std::string_view argument, std::string_view shown);

  /// The name of an argument in messages.
  std::string shown(std::string_view argument) const;

  /// All that is wrong with an argument has been said: tensor() and disjoint() pass over it.
  void settle(std::string_view argument);

  /// Adds "<op>: argument '<argument>' <what>".
  void fail(std::string_view argument, std::string_view what);
  /// fail() unless `ok`, with the text of `what`. It is made of its parts on failure alone: the
  /// texts of a right call took 8 µs of it.
  template <class... Parts>
  bool require(bool ok, std::string_view argument, const Parts&... what) {
    if (!ok) fail(argument, cat(what...));
    return ok;
  }

  /// Checks presence, type, rank, extents, strides, alignment and address range. Returns whether
  /// the rank is right, so that the caller may go on to look at its shape.
  bool tensor(std::string_view argument, const ConstTensor& tensor, const TensorRule& rule);

  /// The tensor's device is of a type that exists; an absent tensor's does not matter.
  bool known_device(const Region& region);

  /// All tensors of a call live on one device; null and absent ones do not count.
  void same_device(std::initializer_list<Region> tensors);

  /// An output must not share memory with any of the others. Views of equal strides and views that
  /// interleave row by row are told apart; anything else is judged by the address range it spans.
  void disjoint(const Region& output, const std::vector<Region>& others);

  /// Where a call's tensors may lie: all on one device, the outputs and the workspace apart from
  /// the inputs and from each other.
  void placement(const Regions& inputs, const Regions& outputs, const Workspace& workspace = {});

  /// The value of a scale is finite and positive.
  void factor(std::string_view argument, float value);

  /// A scale is such a value, or one f32 on the device.
  void scale(std::string_view argument, const Scale& scale);

  /// low ≤ value ≤ high.
  bool range(std::string_view argument, std::int64_t value, std::int64_t low, std::int64_t high,
             std::string_view why = "");

  bool ok() const { return failures_.empty(); }
  std::size_t count() const { return failures_.size(); }
  const std::vector<std::string>& failures() const { return failures_; }
  Scope scope() const { return scope_; }
  /// Throws what was collected; does nothing when all is well.
  void raise(ErrorCode code = ErrorCode::invalid_argument) const;

 private:
  void same_device(std::span<const Region* const> tensors);
  bool settled(std::string_view argument) const;

  std::string op_;
  Scope scope_;
  std::vector<std::string> failures_;
  std::vector<std::pair<std::string, std::string>> shown_as_;
  std::vector<std::string> settled_;
};

/// Checks a cache's views (named 'kv_cache', or 'k_cache' and 'v_cache') and returns Hkv, or 0
/// where the shape cannot tell. `output`: the call writes it.
std::int64_t check_kv_cache(Checker& check, const ConstKVCache& cache, bool output);

/// True where MSA_CHECK=1 asks for the validation of metadata in memory; 0 and nothing do not.
/// \throws Error for any other value: a check that was asked for must not silently stay away.
bool metadata_checks_enabled();

}  // namespace msa
