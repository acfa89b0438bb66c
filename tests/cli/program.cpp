// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace msa::cli {
namespace {

class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "msa_cli_XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no folder for the test");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

const std::string& scratch_folder() {
  static const Folder folder;
  return folder.path();
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ProgramResult run_msa(const std::string& arguments, const std::string& environment) {
  const std::string out = scratch_folder() + "/stdout", err = scratch_folder() + "/stderr";
  const std::string command =
      environment + " '" MSA_BINARY "' " + arguments + " >" + out + " 2>" + err;
  const int status = std::system(command.c_str());
  ProgramResult result;
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  result.out = read_text(out);
  result.err = read_text(err);
  return result;
}

}  // namespace msa::cli
