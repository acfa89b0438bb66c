// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/io/safetensors.h"
#include "cli/place.h"
#include "msa/attend.h"
#include "msa/index.h"

/// \file
/// From the tensors of a file to the arguments of one attend call (docs/run.md).

namespace msa::cli {

/// A parameter of `msa run`: an option on the command line, or an entry of the file's metadata.
struct RunSetting {
  const char* key;    ///< of the metadata; the option has dashes in place of underscores
  const char* value;  ///< "N", "NAME", …
  const char* help;
};
std::span<const RunSetting> run_settings();

/// A tensor that `msa run` reads.
struct RunTensor {
  const char* name;
  const char* shape;
  const char* dtypes;
  const char* help;
};
std::span<const RunTensor> run_tensors();

/// One attend call, with the index_blocks call that chooses its blocks where the file has no
/// selection. Owns what the file does not hold; the file must outlive it.
class RunProblem {
 public:
  /// `options`: settings from the command line, which win over the file's metadata.
  /// \throws Error naming each tensor that is wrong, its shape and what was expected, and each
  /// setting.
  RunProblem(const SafetensorsFile& file, const std::map<std::string, std::string>& options);
  RunProblem(const RunProblem&) = delete;
  RunProblem& operator=(const RunProblem&) = delete;

  /// Runs index_blocks, where it is there, and attend; seconds that they took. On a device they run
  /// twice, on copies there, and the second time counts: the first one loads the kernels.
  double run(Place& place = host_place());

  const AttendArgs& attend_args() const { return attend_; }
  const std::optional<IndexArgs>& index_args() const { return index_; }
  /// out, lse and, where index_blocks chose it, selection.
  std::vector<TensorToStore> outputs() const;
  /// Tensors of the file that nothing reads.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// Settings, of the file or the command line, that its tensors give no use for.
  const std::vector<std::string>& ignored_settings() const { return ignored_settings_; }

 private:
  class Reader;
  void read_cache(Reader& reader);
  void read_batch(Reader& reader);
  void read_selection(Reader& reader);
  /// Lengths are 0 or more, and a table that is made up has pages for them.
  void check_lengths(Reader& reader, const std::vector<std::int32_t>& lens, bool with_table,
                     std::int64_t pages) const;
  /// A tensor of one row a token has as many as q, or as are computed.
  void check_rows(Reader& reader, const char* name, const ConstTensor& tensor) const;
  void allocate_outputs();
  Tensor allocate(DType dtype, std::initializer_list<std::int64_t> shape);
  ConstTensor own(std::vector<std::int32_t> values, std::initializer_list<std::int64_t> shape);

  AttendArgs attend_;
  std::optional<IndexArgs> index_;
  std::vector<std::string> ignored_, ignored_settings_;
  std::deque<std::vector<std::int32_t>> integers_;
  std::deque<std::vector<std::uint64_t>> buffers_;
};

}  // namespace msa::cli
