// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// Files that a command writes: known to be writable before the work starts, never half-written.

namespace msa::cli {

/// A file on its way. The bytes go to a file without a name of its own beside it, which takes the
/// name at commit(): until then, and where anything fails, what stood there stays. A device, a pipe
/// and the file that stdout is open on are written as they are.
class OutputFile {
 public:
  /// \throws Error (io) naming the file.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::string path_;       // as given, for messages
  std::string target_;     // with links followed
  std::string temporary_;  // "" where the file is written as it is
  int file_ = -1;
};

/// A file that an option of a command names.
struct NamedFile {
  std::string option;  ///< "--json", "TRACE"
  std::string path;
};

/// What stands against these files: outputs that cannot be written, that are one of the inputs, or
/// that are one another. Nothing is left behind and no contents are touched.
std::vector<std::string> file_problems(const std::vector<NamedFile>& inputs,
                                       const std::vector<NamedFile>& outputs);

}  // namespace msa::cli
