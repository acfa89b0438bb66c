// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/replay/digest.h"
#include "cli/replay/trace.h"

/// \file
/// What a request says, as keys: equal keys stand for equal text after an equal prefix.

namespace msa::replay {

/// Keys of one request's text. A prompt group's key is chained over all hashes up to it, since the
/// keys and values of a token depend on everything before it; text that nobody can share (output
/// tokens, prompts of a trace without hashes) gets keys of the request's own.
class Content {
 public:
  Content(const TraceRequest& request, std::uint64_t index, std::uint64_t seed)
      : own_(mix(seed, 1, index)), input_length_(request.input_length) {
    std::uint64_t chain = mix(seed, 2);
    for (const std::uint64_t id : request.hash_ids) {
      chain = mix(chain, id);
      prompt_.push_back(chain);
    }
  }

  /// Key of group `group` (tokens 512·group …), as far as it belongs to the prompt.
  std::uint64_t group_key(std::int64_t group) const {
    return group < static_cast<std::int64_t>(prompt_.size())
               ? prompt_[static_cast<std::size_t>(group)]
               : mix(own_, static_cast<std::uint64_t>(group));
  }
  /// Key of the text that the token at `position` belongs to.
  std::uint64_t text_key(std::int64_t position) const {
    return position < input_length_ ? group_key(position / group_tokens) : own_;
  }
  /// Hashes of the prompt's full groups: what prefix sharing goes by.
  std::span<const std::uint64_t> shareable() const {
    const auto full = static_cast<std::size_t>(input_length_ / group_tokens);
    return std::span(prompt_).first(prompt_.empty() ? 0 : full);
  }
  /// Key of the request itself.
  std::uint64_t own_key() const { return own_; }

 private:
  std::uint64_t own_;
  std::int64_t input_length_;
  std::vector<std::uint64_t> prompt_;  // one a hash of the trace
};

/// Contents of all requests of a trace.
inline std::vector<Content> contents_of(std::span<const TraceRequest> trace, std::uint64_t seed) {
  std::vector<Content> contents;
  contents.reserve(trace.size());
  for (const TraceRequest& request : trace) contents.emplace_back(request, contents.size(), seed);
  return contents;
}

}  // namespace msa::replay
