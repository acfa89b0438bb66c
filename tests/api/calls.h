// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "msa/msa.h"

/// \file
/// One small valid call of every operator, with its arguments by name, for tests that break them
/// one at a time.

namespace msa::testing {

/// Memory of a call, zeroed, kept alive and comparable as a whole.
class Memory {
 public:
  Tensor dense(DType type, std::initializer_list<std::int64_t> shape) {
    Tensor t = Tensor::dense(nullptr, type, shape);
    blocks_.emplace_back(static_cast<std::size_t>(t.numel()) * size_of(type));
    t.data = blocks_.back().data();
    return t;
  }

  Tensor i32(const std::vector<std::int32_t>& values, std::initializer_list<std::int64_t> shape) {
    Tensor t = dense(DType::i32, shape);
    std::memcpy(t.data, values.data(), values.size() * sizeof(std::int32_t));
    return t;
  }

  Tensor i64(const std::vector<std::int64_t>& values, std::initializer_list<std::int64_t> shape) {
    Tensor t = dense(DType::i64, shape);
    std::memcpy(t.data, values.data(), values.size() * sizeof(std::int64_t));
    return t;
  }

  const std::deque<std::vector<std::byte>>& contents() const { return blocks_; }

 private:
  std::deque<std::vector<std::byte>> blocks_;
};

/// A tensor argument of a call.
struct Argument {
  std::string name;
  std::variant<ConstTensor*, Tensor*> view;
  bool dense_last = true;  ///< last stride must be 1
  bool required = true;
  std::vector<int> free_extents = {};  ///< dimensions that may have any extent
  /// Dimensions that others are measured by: the argument that is named where they do not fit.
  std::map<int, std::string> measures = {};

  bool is_free(int dim) const {
    return std::find(free_extents.begin(), free_extents.end(), dim) != free_extents.end();
  }

  template <class Change>
  void change(Change change) const {
    std::visit([&](auto* tensor) { change(*tensor); }, view);
  }
  int rank() const {
    return std::visit([](auto* tensor) { return tensor->rank; }, view);
  }
};

/// A scale argument of a call: a host number, in the place of which a test may put a tensor.
struct ScaleArgument {
  std::string name;
  Scale* scale;
};

/// A valid call whose arguments a test may change before `run`.
struct Call {
  std::string op;
  std::vector<Argument> arguments;
  std::function<void()> run;
  std::shared_ptr<Memory> memory;
  std::vector<ScaleArgument> scales = {};
  std::vector<std::string> parts = {};  ///< operators that speak for themselves in its errors
};

/// One maker an operator; each call has memory of its own.
std::vector<std::function<Call()>> call_makers();

/// The parts, for tests that change numbers rather than tensors.
struct AttendCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  AttendArgs args;
  AttendCall();
};
struct IndexCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  IndexArgs args;
  IndexCall();
};
struct WriteCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  WriteCacheArgs args;
  WriteCall();
};
struct ScoresCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  IndexScoresArgs args;
  ScoresCall();
};
struct SelectCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  SelectArgs args;
  SelectCall();
};
struct MergeCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  MergeArgs args;
  MergeCall();
};
struct InsertCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  InsertCacheArgs args;
  InsertCall();
};
struct CopyCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  CopyPagesArgs args;
  CopyCall();
};
struct LayerStepCall {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  LayerStepArgs args;
  LayerStepCall();
};

/// The operators that layer_step's errors may come from.
extern const std::vector<std::string> layer_step_parts;

}  // namespace msa::testing
