// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "msa/attend.h"
#include "msa/copy_pages.h"
#include "msa/index.h"
#include "msa/merge.h"
#include "msa/write_cache.h"

namespace msa {

/// Why something cannot be served; empty = it can.
using Reasons = std::vector<std::string>;

/// One implementation of every operator. A backend lives in a folder of its own and is known to the
/// rest of the library by one line of registry.cpp.
///
/// `run` is called only with arguments that the operator's validator passed and that `supports`
/// accepted, so a backend checks nothing twice. `supports` looks at types, shapes, strides and
/// devices, never at memory.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual const char* name() const = 0;
  /// Why this backend is off on this machine, whatever the call.
  virtual Reasons unavailable() const = 0;

  virtual Reasons supports(const AttendArgs& args) const = 0;
  virtual Reasons supports(const IndexArgs& args) const = 0;
  virtual Reasons supports(const IndexScoresArgs& args) const = 0;
  virtual Reasons supports(const SelectArgs& args) const = 0;
  virtual Reasons supports(const MergeArgs& args) const = 0;
  virtual Reasons supports(const WriteCacheArgs& args) const = 0;
  virtual Reasons supports(const InsertCacheArgs& args) const = 0;
  virtual Reasons supports(const CopyPagesArgs& args) const = 0;

  /// Bytes of workspace that `run` will use: a function of shapes, types and the cap. Throws
  /// `Error` (code `workspace`) where even the smallest chunk does not fit the cap.
  virtual std::size_t workspace_size(const AttendArgs& args) const = 0;
  virtual std::size_t workspace_size(const IndexArgs& args) const = 0;
  virtual std::size_t workspace_size(const IndexScoresArgs& args) const = 0;
  virtual std::size_t workspace_size(const SelectArgs& args) const = 0;

  virtual void run(const AttendArgs& args) const = 0;
  virtual void run(const IndexArgs& args) const = 0;
  virtual void run(const IndexScoresArgs& args) const = 0;
  virtual void run(const SelectArgs& args) const = 0;
  virtual void run(const MergeArgs& args) const = 0;
  virtual void run(const WriteCacheArgs& args) const = 0;
  virtual void run(const InsertCacheArgs& args) const = 0;
  virtual void run(const CopyPagesArgs& args) const = 0;

  /// For MSA_CHECK=1, whose checks run on the host; as they stand for memory that it can read. True
  /// while `stream` is being captured: nothing may be waited for then.
  virtual bool capturing(const char* /*op*/, Device /*device*/, Stream /*stream*/) const {
    return false;
  }
  /// Copies `bytes` of the device's memory to the host, after all that `stream` was given before,
  /// and waits.
  virtual void download(const char* /*op*/, Device /*device*/, Stream /*stream*/, void* to,
                        const void* from, std::size_t bytes) const {
    std::memcpy(to, from, bytes);
  }
};

/// Every backend of this build, in the order in which calls try them.
std::span<const Backend* const> registered_backends();

}  // namespace msa
